"""Codes of the area "runtime"."""

from mllm_compiler.errors import ErrorCode

CODES: dict[str, ErrorCode] = {
    "MLC-X001": ErrorCode(
        title="An input or a name does not fit",
        exit=1,
        cause="A run names an entry, input or output that the program does not have, leaves an "
        "input out, or gives one of another element type, rank or extent.",
        example="vision: error: input 'pixel_values' has rank 3, not 4 [MLC-X001]",
        remedy="`mllmc bundle inspect BUNDLE` lists entries with their inputs and outputs.",
    ),
    "MLC-X002": ErrorCode(
        title="The program breaks its format",
        exit=1,
        cause="`targets/c/program.bin` has an offset, a count or a number that its format does not "
        "allow. A signed bundle of this compiler never has.",
        example="program.bin: error: stage 12 names a tensor that does not exist [MLC-X002]",
        remedy="Compile the model again.",
    ),
    "MLC-X003": ErrorCode(
        title="The runtime lacks a kernel",
        exit=1,
        cause="The program calls a kernel, an element type or a cache format that this build of "
        "the runtime does not have: it was compiled by a newer compiler.",
        example="decode: error: no kernel 'q4a8_linear' [MLC-X003]",
        remedy="Upgrade the runtime, or compile the model with the compiler of its version.",
    ),
    "MLC-X004": ErrorCode(
        title="Out of memory",
        exit=1,
        cause="The operating system has no more memory for the arena, the cache or buffers.",
        example="error: no memory for a session of 4294967296 bytes [MLC-X004]",
        remedy="Lower the bounds in `[dims]` of model.toml and compile again, or free memory.",
    ),
    "MLC-X005": ErrorCode(
        title="Beyond a compiled bound",
        exit=1,
        cause="An input is longer or shorter than the bound that `[dims]` of model.toml or `--dim` "
        "gave its dimension: memory was planned for that.",
        example="decoder: error: input_ids: sequence_length = 400 exceeds the compiled bound 256 "
        "[MLC-X005]",
        remedy="Give an input within the bound, or change the bound in model.toml or with `--dim` "
        "and compile again.",
    ),
    "MLC-X006": ErrorCode(
        title="The cache cannot do that",
        exit=1,
        cause="The KV cache is full, or is set to a length beyond what was written.",
        example="decode: error: the cache holds 2048 tokens and is full [MLC-X006]",
        remedy="Start a new session, or raise the bound of the past in model.toml.",
    ),
    "MLC-X007": ErrorCode(
        title="A kernel refuses its operands",
        exit=1,
        cause="A kernel was called with shapes or parameters that it does not take. The compiler "
        "checks them, so a signed bundle never does this.",
        example="/model/layers.0/mlp/MatMul: error: f32_linear: K is 576 and 1536 [MLC-X007]",
        remedy="Compile the model again; if it stays, please report it.",
    ),
    "MLC-X008": ErrorCode(
        title="Header and library of different versions",
        exit=1,
        cause="The program that calls the runtime was built with the header of another interface "
        "version than the library has.",
        example="error: the caller's interface is 2, the library's 1 [MLC-X008]",
        remedy="Install header and library of one version.",
    ),
    "MLC-X020": ErrorCode(
        title="The runtime cannot verify signatures",
        exit=1,
        cause="The C runtime was built without the headers of libcrypto.",
        example="vlm.mllm_bundle: error: this build of the runtime has no libcrypto to verify a "
        "bundle with [MLC-X020] (install libcrypto's headers and build again)",
        remedy="Install them (`libssl-dev` on Debian) and run `pip install -e .` again.",
    ),
    "MLC-X021": ErrorCode(
        title="The bundle's settings are not understood",
        exit=1,
        cause="`config.json` lacks a setting that the runtime needs, or has one out of range.",
        example="config.json: error: 'image' lacks size, mean or std [MLC-X021] (check the model's "
        "model.toml and compile again)",
        remedy="Correct `[image]`, `[audio]` or `[text]` of model.toml and compile again.",
    ),
    "MLC-X022": ErrorCode(
        title="The prompt is too long",
        exit=1,
        cause="Prompt and answer do not fit into the cache that the model was compiled with.",
        example="error: the prompt has 3000 tokens, 2048 fit [MLC-X022] (shorten the prompt, or "
        "ask for fewer tokens)",
        remedy="Shorten the prompt, or raise the bound of the past in model.toml.",
    ),
    "MLC-X023": ErrorCode(
        title="The picture cannot be read",
        exit=1,
        cause="The file is no picture of a kind that is read, or it is damaged; or the planes, "
        "strides and sizes of a camera's frame do not fit together: an NV12 frame has even sides, "
        "luma, and chroma at half of both sizes, and no stride is shorter than a row.",
        example="notes.txt: error: not a picture that can be read [MLC-X023] (give a PNG, JPEG or "
        "PPM picture)",
        remedy="Give a PNG, JPEG or PPM picture, or correct the frame; `mllm-run` reads PPM (P6) "
        "and uint8 npy alone.",
    ),
    "MLC-X024": ErrorCode(
        title="The sound cannot be read",
        exit=1,
        cause="The file is no 16-bit PCM WAV file of one or two channels, or has another rate than "
        "the model takes.",
        example="talk.wav: error: 44100 Hz, the model takes 16000 Hz [MLC-X024] (give a 16-bit PCM "
        "WAV file of the model's rate)",
        remedy="Convert it, for example `ffmpeg -i talk.mp3 -ar 16000 -ac 1 talk.wav`.",
    ),
    "MLC-X025": ErrorCode(
        title="The model does not take this",
        exit=1,
        cause="Text, a picture or sound was given to a model that has no use for it, or the model "
        "lacks what it needs to answer.",
        example="vlm.mllm_bundle: error: the model takes no picture [MLC-X025] (leave --image out)",
        remedy="`mllmc bundle inspect BUNDLE` shows what the model takes; graphs without text run "
        "with `--inputs` and `--outputs`.",
    ),
    "MLC-X026": ErrorCode(
        title="The C runtime cannot be loaded",
        exit=1,
        cause="`libmllm.so` was not built, or is of another version than the package.",
        example="vlm.mllm_bundle: error: the C runtime cannot be loaded: libmllm.so is not built "
        "[MLC-X026] (pip install -e ., or compile with --target numpy)",
        remedy="Run `pip install -e .` (or `make test`) with a C compiler at hand.",
    ),
    "MLC-X027": ErrorCode(
        title="A library of the checks is not installed",
        exit=4,
        cause="A metric or a picture is computed by a library that the extra `check` brings.",
        example="mllmc check: error: the package jiwer is not installed [MLC-X027] (pip install "
        "'mllm-compiler[check]')",
        remedy="`pip install 'mllm-compiler[check]'`.",
    ),
    "MLC-X028": ErrorCode(
        title="A device is not registered",
        exit=1,
        cause="A function of the program runs on another device, and who opened the model has not "
        "registered a device of that name. `mllm-run` has no devices but the CPU.",
        example="vlm.mllm_bundle: error: 'vision_tflite' runs on the device 'tflite', which is not "
        "registered [MLC-X028] (register the device before the model is opened, as mllmc run does)",
        remedy="Use `mllmc run`, give `Model.open` the device, or pass it to "
        "`mllm_bundle_model_on`; [devices](devices.md) shows how.",
    ),
    "MLC-X029": ErrorCode(
        title="A device failed",
        exit=1,
        cause="The driver of a device could not open, prepare or run a function; the line has its "
        "own words.",
        example="vision: vision_tflite: error: the device 'tflite' failed: LiteRT refuses it: "
        "tensor 3 is unallocated [MLC-X029] (see what the device says; mllmc doctor lists what is "
        "installed)",
        remedy="See what the device says; `mllmc doctor` lists which vendors' libraries are there.",
    ),
    "MLC-X030": ErrorCode(
        title="A device cannot see memory",
        exit=1,
        cause="A device that works in another memory domain than the processor gets tensors that "
        "lie in the arena of a session, and this arena comes from a pool that has the domain. "
        "There is no such pool, or a tensor lies in memory of the caller's.",
        example="error: the device 'npu' cannot see the arena: the session has no pool [MLC-X030] "
        "(make the session with a pool whose backend has the device's memory domain)",
        remedy="Set `mllm_session_options.pool`; leave an output without memory, and it gets its "
        "place in the arena. [Memory](memory.md#where-the-region-comes-from) lists the domains of "
        "each backend.",
    ),
    "MLC-X040": ErrorCode(
        title="No tokens can be guessed",
        exit=1,
        cause="Speculative decoding verifies several tokens in one run: that takes an entry that "
        "gives the logits of every token (the role `language-model`), a cache that can be rewound, "
        "and a draft with the same tokenizer and a session of its own.",
        example="vlm.mllm_bundle: error: the draft has another tokenizer [MLC-X040] (leave "
        "--speculate out, or give a draft of the same family)",
        remedy="Leave `--speculate` out, use `lookup`, or give a draft of the same family; a "
        "decoder that follows an encoder of sound, or whose past is padded to buckets, takes none.",
    ),
    "MLC-X041": ErrorCode(
        title="Conversations cannot share the session",
        exit=1,
        cause="A schedule changes between conversations by their caches. A decoder that attends to "
        "what an encoder left in the session's memory, or whose past is padded to buckets, "
        "remembers more than that.",
        example="whisper.mllm_bundle: error: what this model remembers of a conversation is not in "
        "its cache alone [MLC-X041] (give each conversation a session of its own)",
        remedy="Give each conversation a session of its own.",
    ),
    "MLC-X042": ErrorCode(
        title="A conversation is larger than all may be",
        exit=1,
        cause="Prompt and answer of a conversation need more cache than the schedule allows for "
        "all of them together. That is known before anything is computed.",
        example="error: 2048 tokens take 94371840 bytes of cache, all conversations may take "
        "50000000 [MLC-X042] (shorten the prompt, ask for fewer tokens, or allow more bytes of "
        "cache)",
        remedy="Shorten the prompt, ask for fewer tokens, or give `cache_bytes` of "
        "`mllm_schedule_options` more.",
    ),
    "MLC-X043": ErrorCode(
        title="No window can be kept",
        exit=1,
        cause="An answer that goes on when the cache is full forgets pages and turns the keys "
        "behind them to new positions: that takes rotary embeddings in every layer, and a window "
        "of three pages of 256 tokens or more, in a cache that holds as many. A draft model keeps "
        "none.",
        example="vlm.mllm_bundle: error: a window of 512 tokens in a cache of 2048: both are 768 "
        "at least [MLC-X043] (leave the window out, or ask for one that the model and its cache "
        "can keep)",
        remedy="Leave `--window` out, or ask for 768 tokens or more.",
    ),
    "MLC-X050": ErrorCode(
        title="A stored conversation was changed",
        exit=1,
        cause="The file of a conversation was changed or cut since it was written, or the key is "
        "another. Nothing of it was taken.",
        example="talk.kv: error: the conversation was changed or cut, or has another key "
        "[MLC-X050] (give the file and the key that it was saved with)",
        remedy="Give the file and the key that it was saved with; a damaged one cannot be read.",
    ),
    "MLC-X051": ErrorCode(
        title="A stored conversation is of another model",
        exit=1,
        cause="Keys and values mean something to the model alone that made them: shape, formats "
        "and weights are compared. Or the file is of another version of the runtime.",
        example="talk.kv: error: this is of another model's cache 'past', 30 layers of 3 heads of "
        "64 in pages of 256 tokens, not of 'past', 24 layers of 2 heads of 64 in pages of 256 "
        "tokens [MLC-X051] (restore it with the model that it was saved with)",
        remedy="Restore it with the model that it was saved with.",
    ),
    "MLC-X052": ErrorCode(
        title="A conversation cannot be stored",
        exit=1,
        cause="The system refused to write a file of pages, or to read it: the disk is full, the "
        "folder is not there. What stood there before still does.",
        example="talk.kv: error: the conversation cannot be stored: No space left on device "
        "[MLC-X052] (make room, or name another folder)",
        remedy="Make room, or name another folder.",
    ),
    "MLC-X053": ErrorCode(
        title="A conversation sleeps, or was dropped",
        exit=1,
        cause="Its pages are in the pool's file, or nowhere any more, so that it can neither be "
        "read nor go on.",
        example="error: cache 'past' sleeps, with 812 tokens [MLC-X053] (wake it first, or set its "
        "length to 0)",
        remedy="Wake it with `mllm_cache_wake`; one that was dropped begins anew when its length "
        "is set to 0.",
    ),
    "MLC-X060": ErrorCode(
        title="A pool has no room",
        exit=1,
        cause="No free block of the pool is as large as the buffer, its table of buffers is full, "
        "or more inferences run than it can tell apart. Nothing has changed.",
        example="error: no room for 6291456 bytes of 'page' of session 3: 6438256640 of 6442450944 "
        "are used [MLC-X060] (make the pool larger, or release buffers: mllm_pool_report names "
        "them)",
        remedy="Make the pool larger, or release buffers; `mllm_pool_report` names who holds them.",
    ),
    "MLC-X061": ErrorCode(
        title="The system gives no region",
        exit=1,
        cause="The system refused addresses, a memory file, a heap of the kernel, or an option "
        "that was asked for with `MLLM_POOL_STRICT`; the line has its words.",
        example="error: the heap /dev/dma_heap/system gives no 1048576 bytes: No such file or "
        "directory [MLC-X061] (ask for less, or use the anonymous backend without options)",
        remedy="Ask for less, leave `MLLM_POOL_STRICT` out, or use the anonymous backend.",
    ),
    "MLC-X062": ErrorCode(
        title="A buffer is gone",
        exit=1,
        cause="The number is not that of a buffer with references: it was released once more than "
        "it was retained, or comes from another pool.",
        example="error: the pool has no buffer 4294967299, or it was released [MLC-X062] (keep a "
        "reference while the buffer is used)",
        remedy="Keep a reference while the buffer is used.",
    ),
    "MLC-X063": ErrorCode(
        title="A buffer cannot be accessed so",
        exit=1,
        cause="Another domain writes the buffer, or reads what would be written; or the backend's "
        "memory is not visible to the domain; or an access ends that did not begin.",
        example="error: an NPU cannot read buffer 'arena' of session 1 while the processor writes "
        "it [MLC-X063] (end the other access first, or take a backend that the domain can see)",
        remedy="End the other access first, or make the pool on a backend that the domain can see.",
    ),
    "MLC-X064": ErrorCode(
        title="A cache operation is missing",
        exit=70,
        cause="The checking backend saw an access of bytes that are newer elsewhere: on a device "
        "without coherent caches it would read, or later lose, the wrong bytes.",
        example="error: 'clean' is missing before an access of buffer 'arena' of session 1 "
        "[MLC-X064] (let mllm_pool_access do the operation; report it where it did)",
        remedy="Access buffers through `mllm_pool_access` alone; where that was done, report it.",
    ),
    "MLC-X065": ErrorCode(
        title="A buffer is asked for after warm-up",
        exit=1,
        cause="`mllm_pool_forbid` has said that no buffers come any more; the request is refused "
        "and counted.",
        example="error: 'page' of session 3 asks for 6291456 bytes after warm-up [MLC-X065] (take "
        "every buffer before mllm_pool_forbid)",
        remedy="Take every buffer before `mllm_pool_forbid`, or allow them again.",
    ),
    "MLC-X066": ErrorCode(
        title="A buffer cannot be shared",
        exit=1,
        cause="The pool's memory is no file, the peer is gone, or what it sent is no buffer.",
        example="error: the peer sent no buffer, or is gone [MLC-X066] (share buffers of a memory "
        "file, while the peer is connected)",
        remedy="Make the pool on `mllm_pool_memfd()`, and share while the peer is connected.",
    ),
    "MLC-X067": ErrorCode(
        title="Memory was taken behind the prompt",
        exit=70,
        cause="`mllm-run --forbid-allocations` ends the process at the first allocation behind the "
        "prompt: everything that tokens need is taken before.",
        example="mllm-run: error: memory was taken behind the prompt [MLC-X067] (report it, or "
        "leave --forbid-allocations out)",
        remedy="Report it with the bundle's name; without the option the answer goes on.",
    ),
}
