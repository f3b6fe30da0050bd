"""`.mllm_bundle`: one signed file that holds a compiled model. `docs/bundle.md` is its format."""
