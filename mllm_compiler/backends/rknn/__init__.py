"""Target `rknn`: what Rockchip's toolkit needs to build a `.rknn` of each graph, and those."""
