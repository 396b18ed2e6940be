/*
 * Headers of .npy files: those that numpy writes (python3-numpy, if it is there), what it reads of
 * ours, and what nobody should have written.
 */
#include "client/cli/format.h"
#include "client/cli/input.h"
#include "client/cli/npy.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/random.h"
#include "tests/unit/quietly.h"

#include <fcntl.h>
#include <stdarg.h>
#include <unistd.h>

/* ---- a folder, and numpy ------------------------------------------------------------------- */

static char folder[64];

static void remove_folder(void *arg)
{
    DIR *entries = opendir(folder);
    struct dirent *entry;

    (void)arg;
    while ((entry = readdir(entries)) != NULL) {
        unlinkat(dirfd(entries), entry->d_name, 0);
    }
    closedir(entries);
    rmdir(folder);
}

static void make_folder(void)
{
    snprintf(folder, sizeof(folder), "/tmp/test_npy_XXXXXX");
    if (mkdtemp(folder) == NULL) {
        abort();
    }
    check_at_end(remove_folder, NULL);
}

static char code[8192]; /* in Python */

__attribute__((format(printf, 1, 2))) static void add_code(const char *format, ...)
{
    size_t used = strlen(code);
    va_list args;

    va_start(args, format);
    vsnprintf(code + used, sizeof(code) - used, format, args);
    va_end(args);
}

/* Run the code in the folder, with numpy as n. */
static void run_python(void)
{
    static char command[sizeof(code) + 256];
    static int has_numpy = -1;

    if (has_numpy < 0) {
        has_numpy = system("/usr/bin/python3 -c 'import numpy' 2>/dev/null") == 0;
    }
    if (has_numpy == 0) {
        CHECK_SKIP("there is no python3-numpy");
    }
    snprintf(command, sizeof(command),
             "cd %s && /usr/bin/python3 -c 'import numpy as n\n%s' 2>error", folder, code);
    if (system(command) != 0) {
        CHECK_FAIL("python: %s", code);
    }
    code[0] = '\0';
}

/* The name of one of several files; lives until the next. */
static const char *numbered(size_t i)
{
    static char name[32];

    snprintf(name, sizeof(name), "%zu.npy", i);
    return name;
}

static int open_in_folder(const char *name)
{
    char path[128];
    int fd;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK_GE(fd, 0);
    return fd;
}

/* The header of a file, or what is wrong with it in `failure`; the file's offset in *ret_offset. */
static struct failure failure;

static int read_header(const char *name, struct npy *ret_npy, off_t *ret_offset)
{
    _cleanup_(close_fd) int fd = open_in_folder(name);
    int rc = npy_read(fd, ret_npy, &failure);

    *ret_offset = lseek(fd, 0, SEEK_CUR);
    return rc;
}

/* ---- what numpy writes --------------------------------------------------------------------- */

static const char numpy_names[DTYPE_COUNT][12] = {
    [DTYPE_U8] = "uint8",    [DTYPE_I8] = "int8",       [DTYPE_U16] = "uint16",
    [DTYPE_I16] = "int16",   [DTYPE_U32] = "uint32",    [DTYPE_I32] = "int32",
    [DTYPE_U64] = "uint64",  [DTYPE_I64] = "int64",     [DTYPE_F32] = "float32",
    [DTYPE_F64] = "float64", [DTYPE_C64] = "complex64",
};

static void test_every_dtype_of_numpy(void)
{
    struct npy npy;
    off_t offset;

    make_folder();
    for (enum dtype dtype = 0; dtype < DTYPE_COUNT; dtype++) {
        add_code("n.save(\"%s\", n.ones((7, 3), n.%s))\n", numbered(dtype), numpy_names[dtype]);
    }
    run_python();
    for (enum dtype dtype = 0; dtype < DTYPE_COUNT; dtype++) {
        CHECK_EQ(read_header(numbered(dtype), &npy, &offset), 0);
        CHECK_EQ(npy.dtype, dtype);
        CHECK_EQ(npy.n_dims, 2);
        CHECK_EQ(npy.dims[0], 7);
        CHECK_EQ(npy.dims[1], 3);
        CHECK_EQ(npy_size(&npy), 21 * dtype_size(dtype));
        CHECK_EQ(offset, 128);
    }
}

static void test_shapes_of_numpy(void)
{
    static const struct {
        const char *shape;
        uint32_t n_dims;
        uint64_t n;
    } rows[] = {{"()", 0, 1},         {"(0,)", 1, 0},      {"(5,)", 1, 5},
                {"(2, 3, 4)", 3, 24}, {"(4, 0, 3)", 3, 0}, {"(1,) * 32", 32, 1}};
    struct npy npy;
    off_t offset;

    make_folder();
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        add_code("n.save(\"%s\", n.ones(%s, n.float64))\n", numbered(i), rows[i].shape);
    }
    run_python();
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        CHECK_EQ(read_header(numbered(i), &npy, &offset), 0);
        CHECK_EQ(npy.n_dims, rows[i].n_dims);
        CHECK_EQ(npy_size(&npy), 8 * rows[i].n);
    }
}

static void test_version_2(void)
{
    struct npy npy;
    off_t offset;

    make_folder();
    add_code("with open(\"a.npy\", \"wb\") as file:\n"
             "    n.lib.format.write_array(file, n.ones((3, 2), n.int16), version=(2, 0))");
    run_python();
    CHECK_EQ(read_header("a.npy", &npy, &offset), 0);
    CHECK_EQ(npy.dtype, DTYPE_I16);
    CHECK_EQ(npy_size(&npy), 12);
    CHECK_EQ(offset % 64, 0);
}

static void test_what_numpy_writes_and_no_op_takes(void)
{
    static const struct {
        const char *array, *says;
    } rows[] = {
        {"n.ones(3, \">f4\")", "big-endian; save it as little-endian: a.astype('<f4')"},
        {"n.ones((3, 2), order=\"F\")", "Fortran order; save it in C order"},
        {"n.ones(3, n.float16)", "'<f2', which no op takes"},
        {"n.ones(3, bool)", "'|b1', which no op takes"},
        {"n.ones(3, n.complex128)", "'<c16', which no op takes"},
        {"n.array([\"a\", \"b\"])", "which no op takes"},
        {"n.ones(3, [(\"a\", \"<f4\")])", "no plain numbers"},
    };
    struct npy npy;
    off_t offset;

    make_folder();
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        add_code("n.save(\"%s\", %s)\n", numbered(i), rows[i].array);
    }
    run_python();
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        CHECK_LT(read_header(numbered(i), &npy, &offset), 0);
        CHECK_HAS(failure.message, rows[i].says);
    }
    /* One that needs version 3. */
    add_code("n.save(\"a.npy\", n.ones(3, [(\"\\u00e9\\u4e00\", \"<f4\")]))");
    run_python();
    CHECK_LT(read_header("a.npy", &npy, &offset), 0);
}

/* ---- what numpy reads ---------------------------------------------------------------------- */

static void test_numpy_reads_ours(void)
{
    struct npy record = {.n_dims = 4, .dims = {16777216, 1, 16777215, 1}};
    uint8_t header[NPY_HEADER_SIZE];
    char path[128];
    FILE *file;

    make_folder();
    for (enum dtype dtype = 0; dtype < DTYPE_COUNT; dtype++) {
        record.dtype = dtype;
        random_bytes(header, sizeof(header));
        npy_header(&record, UINT64_MAX, header);
        snprintf(path, sizeof(path), "%s/%s", folder, numbered(dtype));
        file = fopen(path, "we");
        fwrite(header, 1, sizeof(header), file);
        fclose(file);
        add_code("file = open(\"%s\", \"rb\")\n"
                 "assert n.lib.format.read_magic(file) == (1, 0)\n"
                 "shape, is_fortran, dtype = n.lib.format.read_array_header_1_0(file)\n"
                 "assert shape == (2**64 - 1, 16777216, 1, 16777215, 1) and not is_fortran\n"
                 "assert dtype == n.dtype(n.%s) and file.tell() == %d\n",
                 numbered(dtype), numpy_names[dtype], NPY_HEADER_SIZE);
    }
    run_python();
}

static void test_ours_comes_back(void)
{
    struct npy record = {.dtype = DTYPE_C64, .n_dims = 2, .dims = {3, 5}}, back;
    uint8_t header[NPY_HEADER_SIZE];

    for (uint64_t n = 0; n < 2000000; n = 2 * n + 1) {
        npy_header(&record, n, header);
        CHECK_EQ(npy_parse((char *)header + 10, NPY_HEADER_SIZE - 10, &back, &failure), 0);
        CHECK_EQ(back.n_dims, 3);
        CHECK_EQ(back.dims[0], n);
        CHECK_EQ(npy_size(&back), n * 15 * 8);
    }
}

/* ---- what nobody should have written ------------------------------------------------------- */

static int parse(const char *text)
{
    /* A copy of its size, so that a sanitizer sees each step beyond it. */
    _cleanup_(free_pointer) char *copy = malloc(strlen(text) + 1);
    struct npy npy;

    memcpy(copy, text, strlen(text));
    return npy_parse(copy, strlen(text), &npy, &failure);
}

static void test_dictionaries(void)
{
    static const char *const good[] = {
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }",
        "{'shape':(3,),\"descr\":\"<f4\",'fortran_order':False}\n",
        " { 'fortran_order' : False , 'shape' : ( ) , 'descr' : '|u1' } ",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1125899906842624, 0), }",
    };
    static const char *const bad[] = {
        "",
        "{",
        "{}",
        "'descr'",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4)",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), } x",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), 'more': 1}",
        "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (3, 4)}",
        "{'descr': '<f4', 'fortran_order': False}",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (3, 4)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-3, 4)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3 4)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3,, 4)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': 3}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (9007199254740992,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296, 0)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999,)}",
        "{'descr': '|f4', 'fortran_order': False, 'shape': (3,)}",
        "{'descr': '', 'fortran_order': False, 'shape': (3,)}",
        "{'descr': 'f4', 'fortran_order': False, 'shape': (3,)}",
        "{'descr': '<f4' 'fortran_order': False, 'shape': (3,)}",
        "{'descr': '<f44444444444444444444', 'fortran_order': False, 'shape': (3,)}",
        "{'descr: <f4, fortran_order: False, shape: (3,)}",
    };

    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        if (parse(good[i]) < 0) {
            CHECK_FAIL("%s: %s", good[i], failure.message);
        }
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        if (parse(bad[i]) == 0) {
            CHECK_FAIL("%s was taken", bad[i]);
        }
    }
}

/* Any bytes may differ or be missing: nothing is read beyond the end, and a size is a size. */
static void test_headers_that_are_damaged(void)
{
    static const char text[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (31, 42), }";
    static const char spice[] = "{}(),:'\" <|>0129TFfui48\0";
    char damaged[sizeof(text)];
    struct npy npy;

    for (int i = 0; i < 200000; i++) {
        size_t size = random_below(4) == 0 ? random_below(sizeof(text)) : sizeof(text) - 1;
        _cleanup_(free_pointer) char *copy = malloc(MAX(size, 1u));

        memcpy(damaged, text, sizeof(text));
        for (uint64_t n = random_below(4); n > 0; n--) {
            damaged[random_below(sizeof(text) - 1)] = spice[random_below(sizeof(spice))];
        }
        memcpy(copy, damaged, size);
        if (npy_parse(copy, size, &npy, &failure) == 0) {
            CHECK_LE(npy.n_dims, NPY_DIMS);
            CHECK_LE(npy_size(&npy), UINT64_C(1) << 53);
        }
    }
}

static void test_files_that_end_early(void)
{
    uint8_t header[NPY_HEADER_SIZE];
    struct npy record = {.dtype = DTYPE_F32}, npy;
    int ends[2];

    npy_header(&record, 3, header);
    for (size_t size = 0; size <= sizeof(header); size++) {
        CHECK_EQ(pipe2(ends, O_CLOEXEC), 0);
        CHECK_EQ(write(ends[1], header, size), (ssize_t)size);
        close(ends[1]);
        CHECK_EQ(npy_read(ends[0], &npy, &failure) == 0, size == sizeof(header));
        close(ends[0]);
    }
}

/* ---- holding it against an op -------------------------------------------------------------- */

static void test_records_are_counted(void)
{
    const struct npy record = {.dtype = DTYPE_U8, .n_dims = 2, .dims = {4, 3}};
    struct npy npy = {.dtype = DTYPE_U8, .n_dims = 4, .dims = {5, 7, 4, 3}};
    uint64_t n = 0;

    CHECK_EQ(npy_count(&npy, &record, &n, &failure), 0);
    CHECK_EQ(n, 35);
    npy.dims[3] = 4;
    CHECK_LT(npy_count(&npy, &record, &n, &failure), 0);
    CHECK_HAS(failure.message, "it is u8[5, 7, 4, 4], where the op takes u8[n, 4, 3]");
    npy = (struct npy){.dtype = DTYPE_F32, .n_dims = 2, .dims = {4, 3}};
    CHECK_LT(npy_count(&npy, &record, &n, &failure), 0);
    CHECK_HAS(failure.message, "it is f32[4, 3]");
    npy.dtype = DTYPE_U8;
    CHECK_EQ(npy_count(&npy, &record, &n, &failure), 0);
    CHECK_EQ(n, 1);
    npy.n_dims = 1;
    CHECK_LT(npy_count(&npy, &record, &n, &failure), 0);
}

static int count(const struct npy *npy, const struct npy *record)
{
    uint64_t n = 0;

    return npy_count(npy, record, &n, &failure) < 0 ? -1 : (int)n;
}

static void test_dimensions_that_make_up_one(void)
{
    const struct npy image = {.n_dims = 2, .dims = {301, 609}};
    const struct npy block = {.n_dims = 1, .dims = {4096}};
    const struct npy one = {.n_dims = 2, .dims = {1, 1}};

    CHECK_EQ(count(&(struct npy){.n_dims = 3, .dims = {301, 203, 3}}, &image), 1);
    CHECK_EQ(count(&(struct npy){.n_dims = 4, .dims = {5, 301, 203, 3}}, &image), 5);
    CHECK_EQ(count(&(struct npy){.n_dims = 4, .dims = {5, 301, 609, 1}}, &image), 5);
    CHECK_EQ(count(&(struct npy){.n_dims = 4, .dims = {0, 301, 203, 3}}, &image), 0);
    CHECK_EQ(count(&(struct npy){.n_dims = 4, .dims = {2, 5, 64, 64}}, &block), 10);
    CHECK_EQ(count(&(struct npy){.n_dims = 1, .dims = {7}}, &one), 7);
    CHECK_EQ(count(&(struct npy){.n_dims = 3, .dims = {7, 1, 1}}, &one), 7);
    CHECK_EQ(count(&(struct npy){.n_dims = 0}, &one), 1);
    /* The same number of elements is not enough. */
    CHECK_EQ(count(&(struct npy){.n_dims = 3, .dims = {203, 301, 3}}, &image), -1);
    CHECK_EQ(count(&(struct npy){.n_dims = 1, .dims = {301 * 609}}, &image), -1);
    CHECK_EQ(count(&(struct npy){.n_dims = 2, .dims = {64, 63}}, &block), -1);
    CHECK_EQ(count(&(struct npy){.n_dims = 2, .dims = {64, 0}}, &block), -1);
    CHECK_EQ(count(&(struct npy){.n_dims = 0}, &block), -1);
}

static void test_a_record_under_parameters(void)
{
    static const struct manifest_op op = {
        .n_params = 3,
        .params =
            {{.name = "width", .i_default = 5},
             {.name = "height", .is_required = 1},
             {.name = "pitch", .i_default = 1, .n_at_least = 2, .at_least = {"width", "height"}}},
    };
    static const struct manifest_array array = {
        .name = "x",
        .dtype = DTYPE_I16,
        .n_dims = 4,
        .dims = {{.param = "pitch"}, {.fixed = 7}, {.param = "width"}, {.param = "height"}}};
    static const struct manifest_array varying = {
        .dtype = DTYPE_I16, .n_dims = 1, .dims = {{.param = MANIFEST_VARYING}}};
    struct value values[] = {{.name = "height", .kind = VALUE_INT, .i = 11},
                             {.name = "pitch", .kind = VALUE_INT, .i = 100}};
    struct npy record;

    CHECK_EQ(format_record(&op, &array, values, 1, &record), 0);
    CHECK_EQ(record.dtype, DTYPE_I16);
    CHECK_EQ(record.n_dims, 4);
    CHECK_EQ(record.dims[0], 55);
    CHECK_EQ(record.dims[1], 7);
    CHECK_EQ(record.dims[2], 5);
    CHECK_EQ(record.dims[3], 11);
    CHECK_EQ(format_record(&op, &array, values, 2, &record), 0);
    CHECK_EQ(record.dims[0], 100);
    CHECK_EQ(format_record(&op, &varying, values, 0, &record), 0);
    CHECK_EQ(record.n_dims, 0);
    CHECK_EQ(QUIETLY(format_record(&op, &array, values, 0, &record)), 1);
    CHECK_HAS(said, "-p height=VALUE");
}

static void test_formats_of_files(void)
{
    CHECK_EQ(format_of(FORMAT_COUNT, "a.npy", false), FORMAT_NPY);
    CHECK_EQ(format_of(FORMAT_COUNT, "a.npy", true), FORMAT_NPY);
    CHECK_EQ(format_of(FORMAT_COUNT, "a.raw", true), FORMAT_RAW);
    CHECK_EQ(format_of(FORMAT_COUNT, ".npy", true), FORMAT_RAW);
    CHECK_EQ(format_of(FORMAT_COUNT, "-", false), FORMAT_RAW);
    CHECK_EQ(format_of(FORMAT_RAW, "a.npy", false), FORMAT_RAW);
    CHECK_EQ(format_of(FORMAT_NPY, "-", false), FORMAT_NPY);
    CHECK_EQ(format_of(FORMAT_TEXT, "a.npy", false), FORMAT_NPY);
    CHECK_EQ(format_of(FORMAT_HEX, "a", false), FORMAT_RAW);
    CHECK_EQ(format_of(FORMAT_HEX, "a.npy", true), FORMAT_HEX);
}

CHECK_MAIN(CHECK_TEST(test_every_dtype_of_numpy), CHECK_TEST(test_shapes_of_numpy),
           CHECK_TEST(test_version_2), CHECK_TEST(test_what_numpy_writes_and_no_op_takes),
           CHECK_TEST(test_numpy_reads_ours), CHECK_TEST(test_ours_comes_back),
           CHECK_TEST(test_dictionaries), CHECK_TEST(test_headers_that_are_damaged),
           CHECK_TEST(test_files_that_end_early), CHECK_TEST(test_records_are_counted),
           CHECK_TEST(test_dimensions_that_make_up_one), CHECK_TEST(test_a_record_under_parameters),
           CHECK_TEST(test_formats_of_files))
