"""`mllmc bundle`: keys, signatures and contents of bundles."""

from __future__ import annotations

from pathlib import Path

import click

from mllm_compiler.cli.console import write_json, write_line

BUNDLE = click.argument("bundle", type=click.Path(path_type=Path))
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@click.group(name="bundle", no_args_is_help=True)
def bundle_group() -> None:
    """Keys, signatures and contents of bundles."""


@bundle_group.command()
@click.option("--key", type=click.Path(path_type=Path), help="Where to write the private key.")
@JSON
def keygen(key: Path | None, as_json: bool) -> None:
    """Make a private key and trust its public key."""
    from mllm_compiler.bundle.trust import keygen, trust_file

    path, public = keygen(key)
    if as_json:
        write_json({"key": str(path), "public": public.hex(), "trust": str(trust_file())})
        return
    write_line(f"private key  {path}")
    write_line(f"public key   {public.hex()}")
    write_line(f"trusted in   {trust_file()}")


@bundle_group.command()
@BUNDLE
@click.option("--key", type=click.Path(path_type=Path), help="Sign with this private key.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Default: replace BUNDLE.")
@JSON
def sign(bundle: Path, key: Path | None, output: Path | None, as_json: bool) -> None:
    """Sign a bundle whose content is intact."""
    from mllm_compiler.bundle.sign import sign_bundle
    from mllm_compiler.bundle.trust import signing_key

    signer = sign_bundle(bundle, output or bundle, signing_key(key))
    if as_json:
        write_json({"bundle": str(output or bundle), "signer": signer})
        return
    write_line(f"{output or bundle}: signed by {signer}")


@bundle_group.command()
@BUNDLE
@click.option("--trust", type=click.Path(path_type=Path), help="Believe the keys of this file.")
@click.option("--allow-unsigned", is_flag=True, help="Accept a bundle that nobody trusted signed.")
@JSON
def verify(bundle: Path, trust: Path | None, allow_unsigned: bool, as_json: bool) -> None:
    """Check signature, trust, layout and every byte."""
    from mllm_compiler.bundle.trust import read_trust
    from mllm_compiler.bundle.verify import Policy, open_bundle

    opened = open_bundle(bundle, Policy(trust=read_trust(trust), allow_unsigned=allow_unsigned))
    pieces = opened.verify()
    if as_json:
        facts = {"members": len(opened.names()), "pieces": pieces, "bytes": opened.size}
        write_json({"bundle": str(bundle), "signer": opened.signer, **facts})
        return
    signer = f"signed by {opened.signer}" if opened.signer else "not signed"
    write_line(f"{bundle}: intact, {signer}: {len(opened.names())} members, {pieces} pieces")


@bundle_group.command()
@BUNDLE
@JSON
def inspect(bundle: Path, as_json: bool) -> None:
    """Show what a bundle holds, whoever signed it."""
    from mllm_compiler.bundle.inspect import lines, summary
    from mllm_compiler.bundle.verify import LOOK, open_bundle

    opened = open_bundle(bundle, LOOK)
    if as_json:
        write_json(summary(opened))
        return
    for line in lines(opened):
        write_line(line)


@bundle_group.command()
@click.argument("left", type=click.Path(path_type=Path))
@click.argument("right", type=click.Path(path_type=Path))
@JSON
@click.pass_context
def diff(context: click.Context, left: Path, right: Path, as_json: bool) -> None:
    """Show what differs between two bundles; exit status 3 where something does."""
    from dataclasses import asdict

    from mllm_compiler.bundle.diff import differences
    from mllm_compiler.bundle.verify import LOOK, open_bundle

    found = differences(open_bundle(left, LOOK), open_bundle(right, LOOK))
    if as_json:
        write_json({"differences": [asdict(difference) for difference in found]})
    else:
        for difference in found:
            write_line(str(difference))
    context.exit(3 if found else 0)
