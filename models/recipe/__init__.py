"""What the model recipes share: packages, weight readers and graph builders."""
