"""Codes of the area "bundle"."""

from mllm_compiler.errors import ErrorCode

CODES: dict[str, ErrorCode] = {
    "MLC-B001": ErrorCode(
        title="Not a bundle, or its layout is broken",
        exit=1,
        cause="The file is not a `.mllm_bundle`, was cut short in transport, or bytes between its "
        "members were changed. The message names the first region that is wrong.",
        example="vlm.mllm_bundle: error: padding before member 'config.json' was changed "
        "[MLC-B001] (copy or compile the bundle again)",
        remedy="Copy the file again or compile the model again.",
    ),
    "MLC-B002": ErrorCode(
        title="A member is missing",
        exit=1,
        cause="The signed manifest lists a member that the archive does not hold.",
        example="vlm.mllm_bundle: error: member 'text/tokenizer.bin' is missing [MLC-B002] "
        "(copy or compile the bundle again)",
        remedy="Copy the file again or compile the model again.",
    ),
    "MLC-B003": ErrorCode(
        title="An extra member",
        exit=1,
        cause="The archive holds a member that the signed manifest does not list.",
        example="vlm.mllm_bundle: error: member 'extra.txt' is not in the manifest [MLC-B003] "
        "(copy or compile the bundle again)",
        remedy="Nothing may be added to a bundle after it is made: compile the model again.",
    ),
    "MLC-B004": ErrorCode(
        title="A member's content was changed",
        exit=1,
        cause="Bytes of a member do not have the digest that the signed manifest gives.",
        example="vlm.mllm_bundle: error: weights/c.bin: bytes 1048576-2097151 were changed "
        "[MLC-B004] (copy or compile the bundle again)",
        remedy="Copy the file again or compile the model again.",
    ),
    "MLC-B005": ErrorCode(
        title="The bundle is not signed",
        exit=1,
        cause="The bundle has no member `signature`, so nobody vouches for its content.",
        example="vlm.mllm_bundle: error: the bundle is not signed [MLC-B005] "
        "(mllmc bundle sign, or --allow-unsigned)",
        remedy="Sign it with `mllmc bundle sign`, or accept it with `--allow-unsigned`.",
    ),
    "MLC-B006": ErrorCode(
        title="Signed by a key that is not trusted",
        exit=1,
        cause="The signature is right, but the public key that made it does not stand in the "
        "trust file.",
        example="vlm.mllm_bundle: error: the key 3b6a27bc...b6e2d0b1 is not trusted [MLC-B006] "
        "(add it to the trust file if you know whose it is)",
        remedy="If you know whose key it is, add the public key as a line to the trust file "
        "(`mllmc bundle inspect` prints it), or name another file with `--trust`.",
    ),
    "MLC-B007": ErrorCode(
        title="The signature does not match",
        exit=1,
        cause="`manifest.json` or `signature` was changed after signing.",
        example="vlm.mllm_bundle: error: member 'signature' does not match 'manifest.json' "
        "[MLC-B007] (copy or compile the bundle again)",
        remedy="Copy the file again or compile the model again.",
    ),
    "MLC-B008": ErrorCode(
        title="A bundle of a newer format",
        exit=1,
        cause="The bundle was made by a newer version of the compiler than the one that reads it.",
        example="vlm.mllm_bundle: error: made by a newer version: format 2, this version reads up "
        "to 1 [MLC-B008] (upgrade mllm-compiler)",
        remedy="Upgrade, or compile the model with this version.",
    ),
    "MLC-B009": ErrorCode(
        title="A bundle for another runtime",
        exit=1,
        cause="The compatibility block names an interface version or a minimum runtime version "
        "that this installation does not have.",
        example="vlm.mllm_bundle: error: needs runtime interface 2, this runtime has 1 "
        "[MLC-B009] (upgrade the runtime, or compile again with this version)",
        remedy="Upgrade the runtime, or compile the model again with this version.",
    ),
    "MLC-B010": ErrorCode(
        title="The bundle lacks a target",
        exit=1,
        cause="The bundle was not compiled for the target that is to run it.",
        example="vlm.mllm_bundle: error: has no target 'c', only numpy [MLC-B010] "
        "(compile with --target c)",
        remedy="Compile the model for that target.",
    ),
    "MLC-B011": ErrorCode(
        title="The bundle would be too large",
        exit=1,
        cause="Format 1 holds less than 4 GiB. Weights that are more are refused before any pass "
        "runs.",
        example="vlm.mllm_bundle: error: 4800000000 bytes are more than a bundle of format 1 "
        "holds [MLC-B011] (compile a smaller or quantised model)",
        remedy="Compile a smaller or a quantised model.",
    ),
    "MLC-B012": ErrorCode(
        title="A key or trust file cannot be used",
        exit=1,
        cause="The file does not exist, holds no Ed25519 private key in PEM, or has a line that is "
        "not a public key of 64 hexadecimal digits; or a key would be overwritten.",
        example="trust:3: error: not a public key of 64 hexadecimal digits [MLC-B012] "
        "(one key a line)",
        remedy="Make a key with `mllmc bundle keygen`; put one public key on each line.",
    ),
    "MLC-B013": ErrorCode(
        title="The manifest is not understood",
        exit=1,
        cause="`manifest.json` is signed, yet is not canonical JSON or lacks a key: the program "
        "that wrote it did not follow the format.",
        example="vlm.mllm_bundle: error: manifest.json: 'members' is missing [MLC-B013] "
        "(compile the model again)",
        remedy="Compile the model again.",
    ),
    "MLC-B014": ErrorCode(
        title="The runtime lacks something that the tokenizer needs",
        exit=1,
        cause="The tables in the bundle hold byte-level BPE as GPT-2, SmolLM2, Whisper have it. A "
        "tokenizer with another model, pre-tokenizer or normaliser would give other tokens.",
        example="tokenizer.json: error: the runtime has no tokenizer model 'Unigram' [MLC-B014] "
        "(use a byte-level BPE tokenizer, or compile without [text])",
        remedy="Use a byte-level BPE tokenizer, or compile without `[text]` and tokenize outside.",
    ),
    "MLC-B015": ErrorCode(
        title="The chat template cannot be used",
        exit=1,
        cause="The Jinja template has a syntax error, or what it renders does not contain the "
        "user's message, so that the runtime could not put a prompt in.",
        example="chat_template.jinja: error: the chat template cannot be used: it does not show a "
        "user's message [MLC-B015] (correct the template, or leave 'template' out of [text])",
        remedy="Correct the template, or leave `template` out of `[text]`.",
    ),
}
