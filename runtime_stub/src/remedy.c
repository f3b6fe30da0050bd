/* What to do about an error, by its code: the remedies of docs/errors.md in a few words. */
#include <string.h>

#include "mllm.h"

typedef struct remedy {
  const char *code;
  const char *text;
} remedy;

static const remedy remedies[] = {
    {"MLC-B001", "copy or compile the bundle again"},
    {"MLC-B002", "copy or compile the bundle again"},
    {"MLC-B003", "copy or compile the bundle again"},
    {"MLC-B004", "copy or compile the bundle again"},
    {"MLC-B005", "mllmc bundle sign, or --allow-unsigned"},
    {"MLC-B006", "add it to the trust file if you know whose it is"},
    {"MLC-B007", "copy or compile the bundle again"},
    {"MLC-B008", "upgrade mllm-compiler"},
    {"MLC-B009", "upgrade the runtime, or compile again with this version"},
    {"MLC-B010", "compile with --target c"},
    {"MLC-B012", "one key a line"},
    {"MLC-B013", "compile the model again"},
    {"MLC-U005", "check the path"},
    {"MLC-X001", "see the entries and their inputs with mllmc bundle inspect"},
    {"MLC-X002", "compile the model again"},
    {"MLC-X003", "upgrade the runtime, or compile again with this version"},
    {"MLC-X004", "lower the bounds in [dims] of model.toml, or free memory"},
    {"MLC-X005", "give a shorter input, or raise the bound in [dims] of model.toml"},
    {"MLC-X006", "start a new session, or raise the bound of the past in model.toml"},
    {"MLC-X007", "compile the model again; if it stays, report it"},
    {"MLC-X008", "install header and library of one version"},
    {"MLC-X020", "install libcrypto's headers and build again"},
    {"MLC-X021", "check the model's model.toml and compile again"},
    {"MLC-X022", "shorten the prompt, or ask for fewer tokens"},
    {"MLC-X023", "use a P6 PPM or a uint8 npy image of shape [height, width, 3]"},
    {"MLC-X024", "use a 16-bit PCM WAV file with one or two channels"},
    {"MLC-X025", "give what it takes: --prompt, --image, --audio; mllmc bundle inspect tells"},
    {"MLC-X028", "register the device before the model is opened, as mllmc run does"},
    {"MLC-X029", "see what the device says; mllmc doctor lists what is installed"},
    {"MLC-X030", "make the session with a pool whose backend has the device's memory domain"},
    {"MLC-X040", "leave --speculate out, or give a draft of the same family"},
    {"MLC-X041", "give each conversation a session of its own"},
    {"MLC-X042", "shorten the prompt, ask for fewer tokens, or allow more bytes of cache"},
    {"MLC-X043", "leave the window out, or ask for one that the model and its cache can keep"},
    {"MLC-X050", "give the file and the key that it was saved with"},
    {"MLC-X051", "restore it with the model that it was saved with"},
    {"MLC-X052", "make room, or name another folder"},
    {"MLC-X053", "wake it first, or set its length to 0"},
    {"MLC-X060", "make the pool larger, or release buffers: mllm_pool_report names them"},
    {"MLC-X061", "ask for less, or use the anonymous backend without options"},
    {"MLC-X062", "keep a reference while the buffer is used"},
    {"MLC-X063", "end the other access first, or take a backend that the domain can see"},
    {"MLC-X064", "let mllm_pool_access do the operation; report it where it did"},
    {"MLC-X065", "take every buffer before mllm_pool_forbid"},
    {"MLC-X066", "share buffers of a memory file, while the peer is connected"},
};

const char *mllm_remedy(const char *code) {
  for (size_t i = 0; i < sizeof remedies / sizeof remedies[0]; i++)
    if (strcmp(remedies[i].code, code) == 0) return remedies[i].text;
  return "";
}
