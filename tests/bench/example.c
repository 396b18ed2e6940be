/*
 * Example: the table of what bench_ops measures.
 */
#include "tests/bench/example.h"

#include "proto/util.h"
#include "tests/bench/bench.h"
#include "tests/bench/subject.h"

#include <string.h>

static void fill_bytes(void *bytes, size_t size, uint32_t input)
{
    (void)input;
    bench_fill(bytes, size);
}

static void fill_floats(void *bytes, size_t size, uint32_t input)
{
    (void)input;
    subject_fill(bytes, size);
}

/* Two sequences of four letters, and whole lengths. */
static void fill_pairs(void *bytes, size_t size, uint32_t input)
{
    uint8_t *letters = bytes;

    if (input == 2) {
        memset(bytes, 0xff, size);
        return;
    }
    bench_fill(bytes, size);
    for (size_t i = 0; i < size; i++) {
        letters[i] = (uint8_t) "ACGT"[letters[i] % 4];
    }
}

const struct example examples[] = {
    {"align_score", "length=256", {{.name = "length", .i = 256}}, fill_pairs, 8, false},
    {"copy", "size=4096", {{.name = "size", .i = 4096}}, fill_bytes, 1, false},
    {"dhash",
     "512x512 RGB",
     {{.name = "width", .i = 512}, {.name = "height", .i = 512}, {.name = "pitch", .i = 1536}},
     fill_bytes,
     1,
     false},
    {"gray", "", {{.name = ""}}, fill_bytes, 1, false},
    {"iterate", "n=1000", {{.name = "n", .i = 1000}}, fill_floats, 8, false},
    {"minhash", "4 KiB documents, 128", {{.name = ""}}, fill_bytes, 16, false, .document = 4096},
    {"resize",
     "512x512 RGB to 224x224",
     {{.name = "width", .i = 512},
      {.name = "height", .i = 512},
      {.name = "pitch", .i = 1536},
      {.name = "out_width", .i = 224},
      {.name = "out_height", .i = 224}},
     fill_bytes,
     1,
     false},
    {"rs16",
     "k=32 n=4096 m=8",
     {{.name = "k", .i = 32}, {.name = "n", .i = 4096}, {.name = "m", .i = 8}},
     fill_bytes,
     2,
     false},
    {"saxpy", "a=2.5", {{.name = "a", .kind = VALUE_FLOAT, .f = 2.5}}, fill_floats, 1, false},
    {"sha256", "block=4096", {{.name = "block", .i = 4096}}, fill_bytes, 1, false},
    {"sincos", "", {{.name = ""}}, fill_floats, 1, true},
    {"sum", "", {{.name = ""}}, fill_floats, 1, false},
};

const uint32_t n_examples = ARRAY_SIZE(examples);
