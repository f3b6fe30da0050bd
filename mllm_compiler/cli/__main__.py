"""`python -m mllm_compiler.cli` is `mllmc`."""

from mllm_compiler.cli.main import main

main()
