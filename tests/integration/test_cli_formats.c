/*
 * What files hold, as gpupipe-cli sees it: .npy, text, terminals; and operands that are not plain
 * inputs.  OPERANDS_WORKER is a worker of the CPU that has the ops of tests/operands.
 */
#include "tests/integration/cli.h"
#include "tests/reference.h"
#include "tests/wire.h"

#include <fcntl.h>
#include <math.h>
#include <termios.h>

/* ---- .npy ---------------------------------------------------------------------------------- */

/* This must hold in Python, with numpy as n and its load() and save() at hand. */
__attribute__((format(printf, 2, 3))) static void python(struct harness *harness,
                                                         const char *format, ...)
{
    char code[1024];
    va_list args;

    harness_shell(harness, &output, "/usr/bin/python3 -c 'import numpy'");
    if (output.code != 0) {
        CHECK_SKIP("there is no python3-numpy");
    }
    va_start(args, format);
    vsnprintf(code, sizeof(code), format, args);
    va_end(args);
    shell(harness, OK, "/usr/bin/python3 -c 'import numpy as n; from numpy import load, save\n%s'",
          code);
}

static void test_arrays_of_numpy(void)
{
    struct harness *daemon = harness_start();

    python(daemon, "r = n.random.default_rng()\n"
                   "save(\"x.npy\", r.random(1500007, dtype=n.float32))\n"
                   "save(\"y.npy\", r.random(1500007, dtype=n.float32))\n"
                   "save(\"image.npy\", r.integers(0, 256, (301, 203, 3), n.uint8))");
    shell(daemon, OK, "cli run saxpy -p a=2.5 -i x.npy -i y=y.npy -o out.npy");
    python(daemon, "x, y, out = load(\"x.npy\"), load(\"y.npy\"), load(\"out.npy\")\n"
                   "assert out.dtype == n.float32 and out.shape == x.shape\n"
                   "assert (out == n.float32(2.5) * x + y).all()");
    shell(daemon, OK, "cli run gray -i image.npy -o gray.npy --chunk 64K");
    python(daemon, "i, out = load(\"image.npy\").astype(int), load(\"gray.npy\")\n"
                   "want = (77 * i[..., 0] + 150 * i[..., 1] + 29 * i[..., 2] + 128) >> 8\n"
                   "assert out.dtype == n.uint8 and (out == want.reshape(-1)).all()");
    /* One record, and none. */
    shell(daemon, OK, "cli run sum -i x.npy -o sum.npy");
    python(daemon, "x, out = load(\"x.npy\"), load(\"sum.npy\")\n"
                   "assert out.dtype == n.float64 and out.shape == (1,)\n"
                   "assert abs(out[0] - x.astype(float).sum()) < 1e-6\n"
                   "save(\"none.npy\", n.zeros(0, n.float32))");
    shell(daemon, OK, "cli run iterate -i none.npy -o none2.npy");
    python(daemon, "assert load(\"none2.npy\").shape == (0,)");
}

static void test_arrays_through_pipes(void)
{
    struct harness *daemon = harness_start();

    python(daemon,
           "save(\"x.npy\", n.random.default_rng().integers(0, 256, (500, 4096), n.uint8))");
    /* The number of records comes from the input's header, or is put into the output's at its end.
     */
    shell(daemon, OK, "cat x.npy | cli run sha256 --format npy -i - -o - | cat > out.npy");
    shell(daemon, OK, "tail -c 2048000 x.npy > raw; cat raw | cli run sha256 -i - -o out2.npy");
    shell(daemon, OK, "cmp out.npy out2.npy");
    python(daemon, "import hashlib\n"
                   "x, out = load(\"x.npy\"), load(\"out.npy\")\n"
                   "assert out.shape == (500, 32) and out.dtype == n.uint8\n"
                   "assert all(hashlib.sha256(a).digest() == b.tobytes() for a, b in zip(x, out))");
    shell(daemon, FAILED, "cat raw | cli run sha256 -i - --format npy -o -");
    CHECK_HAS(output.err, "no .npy file");
    shell(daemon, FAILED,
          "mkfifo f.npy; cat f.npy > /dev/null & cat raw | cli run sha256 -i - -o f.npy; code=$?; "
          "wait; exit $code");
    CHECK_HAS(output.err, "not known yet");
}

static void test_a_header_is_never_data(void)
{
    struct harness *daemon = harness_start();

    python(daemon, "save(\"x.npy\", n.random.default_rng().random(1000, dtype=n.float32))");
    shell(daemon, OK, "tail -c 4000 x.npy > raw");
    shell(daemon, OK,
          "cli run sum -i raw -o - --format text > a; "
          "cli run sum -i x.npy -o - --format text > b; "
          "cat x.npy x.npy > two.npy; cli run sum -i two.npy -o - --format hex > c; "
          "cli run sum -i raw -o - --format hex > d; cmp a b && cmp c d");
    /* As it is, if asked for. */
    shell(daemon, OK, "cli run copy -i x.npy -o y.npy --format raw && cmp x.npy y.npy");
}

static void test_arrays_that_do_not_fit(void)
{
    static const struct {
        const char *array, *op, *says;
    } rows[] = {
        {"n.ones(10)", "sum", "it is f64[10], where the op takes f32[n]"},
        {"n.ones((10, 4), n.uint8)", "gray", "it is u8[10, 4], where the op takes u8[n, 3]"},
        {"n.ones((10, 100), n.uint8)", "sha256 -p block=99", "the op takes u8[n, 99]"},
        {"n.ones(10, \">f4\")", "sum", "big-endian; save it as little-endian"},
        {"n.ones((9, 3), n.uint8, order=\"F\")", "gray", "ascontiguousarray"},
    };
    struct harness *daemon = harness_start();

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        python(daemon, "save(\"in.npy\", %s)", rows[i].array);
        shell(daemon, FAILED, "cli run %s -i in.npy -o out", rows[i].op);
        CHECK_HAS(output.err, "in.npy");
        CHECK_HAS(output.err, rows[i].says);
    }
    python(daemon, "save(\"in.npy\", n.ones(1000, n.float32))");
    shell(daemon, FAILED, "head -c 4000 in.npy > short.npy; cli run sum -i short.npy -o out");
    CHECK_HAS(output.err, "ends after 3872 of the 4000 bytes");
    shell(daemon, FAILED, "cat short.npy | cli run sum --format npy -i - -o out");
    CHECK_HAS(output.err, "ends after 3872 of the 4000 bytes");
    shell(daemon, FAILED, "cli run sum -i /dev/null --format npy -o out");
    CHECK(!exists(daemon, "out"));
}

/* ---- text and terminals -------------------------------------------------------------------- */

static void test_hex_is_the_bytes(void)
{
    enum { SIZE = 4 * 50000 };
    struct harness *daemon = harness_start();

    write_random(daemon, "in", SIZE);
    shell(daemon, OK,
          "cli run copy -p size=40 -i in --format hex > out; "
          "od -An -v -tx1 -w40 in | tr -d ' ' > want; cmp out want");
}

static void close_at_end(void *arg)
{
    close((int)(intptr_t)arg);
}

static void test_no_binary_to_a_terminal(void)
{
    int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    struct harness *daemon;
    struct termios raw;
    char name[64], got[16] = "";

    CHECK_GE(terminal, 0);
    check_at_end(close_at_end, (void *)(intptr_t)terminal);
    CHECK_EQ(grantpt(terminal), 0);
    CHECK_EQ(unlockpt(terminal), 0);
    snprintf(name, sizeof(name), "%s", ptsname(terminal));
    tcgetattr(terminal, &raw);
    cfmakeraw(&raw);
    tcsetattr(terminal, TCSANOW, &raw);

    daemon = harness_start();
    harness_write(daemon, "in", "some bytes", 10);
    shell(daemon, USAGE, "cli run copy -i in > %s", name);
    CHECK_HAS(output.err, "no binary to a terminal");
    CHECK_HAS(output.err, "-o FILE");
    shell(daemon, USAGE, "cli run copy -i in --format npy -o - > %s", name);
    shell(daemon, USAGE, "cli run copy -i in -o %s", name);
    CHECK_HAS(output.err, "no binary to a terminal");
    fcntl(terminal, F_SETFL, O_NONBLOCK);
    CHECK_LT(read(terminal, got, sizeof(got)), 1);
    /* Held open, so that what was written is still there. */
    shell(daemon, OK,
          "exec 3> %s; cli run copy -i in -f >&3; "
          "cli run copy -i in -p size=5 --format hex >&3; sleep 0.1",
          name);
    CHECK_EQ(read(terminal, got, 10), 10);
    CHECK_MEM(got, "some bytes", 10);
    CHECK_EQ(read(terminal, got, 11), 11);
    CHECK_MEM(got, "736f6d6520\n", 11);
}

/* ---- constants ----------------------------------------------------------------------------- */

static struct harness *start_with_operands(void)
{
    static const char *const options[] = {"--backend",     "cpu", "--devices", "cpu0",
                                          "--pinned-pool", "64M", NULL};
    struct harness *harness = harness_create();

    harness_place_worker(harness, "cpu", getenv("OPERANDS_WORKER"));
    harness_launch(harness, options);
    return harness;
}

enum { WIDTH = 29, CHANNELS = 3, PITCH = 100, N_COLORS = 200, N_ROWS = 30000 };

#define PALETTE "palette -p width=29 -p channels=3 -p pitch=100 -p colors=200"

/* What palette makes of these rows. */
static uint64_t *add_colors(const uint8_t *rows, const uint32_t *colors, uint64_t start)
{
    uint64_t *sums = random_new(N_ROWS * sizeof(*sums));

    for (int i = 0; i < N_ROWS; i++) {
        sums[i] = start;
        for (int x = 0; x < WIDTH * CHANNELS; x++) {
            sums[i] = 3 * sums[i] + colors[rows[i * PITCH + x] % N_COLORS];
        }
    }
    return sums;
}

static void test_constants(void)
{
    struct harness *daemon = start_with_operands();
    const uint8_t *rows = write_random(daemon, "rows", N_ROWS * PITCH);
    const uint32_t *colors = write_random(daemon, "colors", N_COLORS * sizeof(*colors));
    const uint64_t *start = write_random(daemon, "start", sizeof(*start));
    const uint64_t *sums = add_colors(rows, colors, *start);
    struct wire *wire = wire_connect(harness_socket(daemon));

    shell(daemon, OK, "cli --json run " PALETTE " -i rows -k start=start -k colors=colors -o out");
    CHECK_HAS(output.out, "\"path\": \"ring\"");
    check_file(daemon, "out", sums, N_ROWS * sizeof(*sums));
    harness_write(daemon, "json", output.out, strlen(output.out));
    python(daemon, "import hashlib, json\n"
                   "assert json.load(open(\"json\"))[\"sha256\"] == {name: "
                   "hashlib.sha256(open(name, \"rb\").read()).hexdigest() "
                   "for name in (\"colors\", \"start\")}");
    shell(daemon, OK, "cli run " PALETTE " -i rows -k colors -k start -o out2 --chunk 64K");
    check_file(daemon, "out2", sums, N_ROWS * sizeof(*sums));
    shell(daemon, OK, "cat colors | cli run " PALETTE " -i rows -k - -k start -o out3 --inline");
    check_file(daemon, "out3", sums, N_ROWS * sizeof(*sums));
    HARNESS_WAIT(wire_number(wire_call(wire, "stats", "[]"), "consts") == 0);
    python(daemon, "save(\"colors.npy\", n.fromfile(\"colors\", n.uint32))\n"
                   "save(\"start.npy\", n.fromfile(\"start\", n.uint64)[0])");
    shell(daemon, OK, "cli run " PALETTE " -i rows -k colors.npy -k start.npy -o out4");
    check_file(daemon, "out4", sums, N_ROWS * sizeof(*sums));
}

static void test_constants_that_do_not_fit(void)
{
    struct harness *daemon = start_with_operands();

    write_random(daemon, "rows", N_ROWS * PITCH);
    write_random(daemon, "colors", N_COLORS * 4);
    write_random(daemon, "start", 8);
    shell(daemon, USAGE, "cli run " PALETTE " -i rows -k colors -o out");
    CHECK_HAS(output.err, "constant start has no file: -k start=FILE");
    shell(daemon, USAGE, "cli run " PALETTE " -i rows -k colors -k start=start -k start=start");
    shell(daemon, FAILED, "cli run " PALETTE " -i rows -k start -k colors -o out");
    CHECK_HAS(output.err, "constant colors: start has less than the 800 bytes that the op takes");
    shell(daemon, FAILED, "cli run " PALETTE " -i rows -k colors -k colors -o out");
    CHECK_HAS(output.err, "constant start: colors has more than the 8 bytes that the op takes");
    shell(daemon, FAILED, "cli run " PALETTE " -i rows -k colors -k missing -o out");
    CHECK_HAS(output.err, "missing: No such file");
    CHECK(!exists(daemon, "out"));
    shell(daemon, OK, "cli op show palette");
    CHECK_HAS(output.out, "const      colors  u32[colors]");
    CHECK_HAS(output.out, "no less than width * channels");
}

/* ---- records of any length ----------------------------------------------------------------- */

enum { N_TEXTS = 40000, ELEMENTS_MAX = 400 };

/* Texts of random lengths, with their hashes. */
struct texts {
    uint32_t *ends;
    uint16_t *text;
    uint64_t *hashes;
    uint32_t n_elements;
};

static struct texts make_texts(struct harness *harness)
{
    struct texts texts = {
        .ends = random_new(N_TEXTS * sizeof(uint32_t)),
        .text = random_new(N_TEXTS * ELEMENTS_MAX * sizeof(uint16_t)),
        .hashes = random_new(N_TEXTS * sizeof(uint64_t)),
    };

    for (int i = 0; i < N_TEXTS; i++) {
        uint32_t n = random_below(5) == 0 ? 0 : (uint32_t)random_below(ELEMENTS_MAX);

        texts.hashes[i] = n;
        for (uint32_t k = 0; k < n; k++) {
            texts.hashes[i] = texts.hashes[i] * 31 + texts.text[texts.n_elements + k];
        }
        texts.ends[i] = texts.n_elements += n;
    }
    harness_write(harness, "ends", texts.ends, N_TEXTS * sizeof(uint32_t));
    harness_write(harness, "text", texts.text, texts.n_elements * sizeof(uint16_t));
    return texts;
}

static void test_records_of_any_length(void)
{
    struct harness *daemon = start_with_operands();
    struct texts texts = make_texts(daemon);
    size_t size = N_TEXTS * sizeof(uint64_t);

    shell(daemon, OK, "cli run spans -i ends=ends -i text=text -o out --inline");
    check_file(daemon, "out", texts.hashes, size);
    /* Many more pushes than the ends alone would need. */
    shell(daemon, OK, "cli --json run spans -i ends -i text -o out2 --chunk 64K");
    check_file(daemon, "out2", texts.hashes, size);
    CHECK(strstr(output.out, "\"pushes\": 3,") == NULL);
    CHECK_HAS(output.out, "\"path\": \"ring\"");
    shell(daemon, OK,
          "mkfifo a b; cat ends > a & cat text > b & "
          "cli --json run spans -i a -i b -o out3 --chunk 1M");
    check_file(daemon, "out3", texts.hashes, size);
    CHECK_HAS(output.out, "\"path\": \"ring\"");
    python(daemon, "save(\"e.npy\", n.fromfile(\"ends\", n.uint32))\n"
                   "save(\"t.npy\", n.fromfile(\"text\", n.uint16))");
    shell(daemon, OK, "cli run spans -i e.npy -i t.npy -o out4 --chunk 100K");
    check_file(daemon, "out4", texts.hashes, size);
    shell(daemon, OK, "cli run spans -i /dev/null -i /dev/null -o none && test ! -s none");
}

static void test_ends_that_do_not_fit(void)
{
    struct harness *daemon = start_with_operands();
    uint32_t ends[] = {3, 3, 2};

    make_texts(daemon);
    shell(daemon, FAILED, "head -c 1000000 text > short; cli run spans -i ends -i short -o out");
    CHECK_HAS(output.err, "short ends before the last end");
    shell(daemon, FAILED, "cat text text > long; cli run spans -i ends -i long -o out");
    CHECK_HAS(output.err, "long goes on behind the last end");
    shell(daemon, FAILED, "cli run spans -i /dev/null -i text -o out");
    CHECK_HAS(output.err, "text goes on behind the last end");
    harness_write(daemon, "falling", ends, sizeof(ends));
    shell(daemon, FAILED, "cli run spans -i falling -i text -o out");
    CHECK_HAS(output.err, "an end is before the one before it");
    ends[1] = ends[2] = 40000;
    harness_write(daemon, "far", ends, sizeof(ends));
    shell(daemon, FAILED, "cli run spans -i far -i text -o out --chunk 64K");
    CHECK_HAS(output.err, "a record is larger than a push");
    shell(daemon, FAILED, "head -c 1001 ends > part; cli run spans -i part -i text -o out");
    CHECK_HAS(output.err, "not a multiple of the record's 4");
    CHECK(!exists(daemon, "out"));
}

CHECK_MAIN(CHECK_TEST(test_arrays_of_numpy), CHECK_TEST(test_arrays_through_pipes),
           CHECK_TEST(test_a_header_is_never_data), CHECK_TEST(test_arrays_that_do_not_fit),
           CHECK_TEST(test_hex_is_the_bytes), CHECK_TEST(test_no_binary_to_a_terminal),
           CHECK_TEST(test_constants), CHECK_TEST(test_constants_that_do_not_fit),
           CHECK_TEST(test_records_of_any_length), CHECK_TEST(test_ends_that_do_not_fit))
