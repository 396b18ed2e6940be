/*
 * Manifest: what an op is.  Its source file fills one `struct manifest_op` (cuda/op.h); the worker
 * announces it to the front end; `op.list` shows it to clients.  Nobody else keeps a list of ops.
 *
 * Arrays are sequences of records.  A record is `dims` elements of `dtype`, a dimension being a
 * number or the value of an integer parameter: sha256 with block=4096 takes u8[4096] and gives
 * u8[32].
 *
 * A *constant* is one record for the whole job, which every chunk sees.  One input may be
 * *varying*: its only dimension is MANIFEST_VARYING, and another input has its *ends*, a u32 for
 * each record. Record i of it is the elements from the end of record i - 1 (0 for the first) to its
 * own.
 *
 * A map op's output record i depends on input record i alone, and on the constants.  A reduce op's
 * input is cut into fixed leaves of `leaf` records; each leaf gives one partial, partials are
 * folded in leaf order, and a last step turns the fold into output record 0: the same bits however
 * the input was cut.
 *
 * Threads: pure functions.  The struct travels between front end and worker as it is (same machine,
 * same build); manifest_check() makes a received one safe to use.
 */
#pragma once

#include "proto/limits.h"
#include "proto/status.h"

#include <stdbool.h>
#include <stdint.h>

/* X(NAME, name, bytes) */
#define DTYPE_LIST(X)                                                                              \
    X(U8, "u8", 1)                                                                                 \
    X(I8, "i8", 1)                                                                                 \
    X(U16, "u16", 2)                                                                               \
    X(I16, "i16", 2)                                                                               \
    X(U32, "u32", 4)                                                                               \
    X(I32, "i32", 4)                                                                               \
    X(U64, "u64", 8)                                                                               \
    X(I64, "i64", 8)                                                                               \
    X(F32, "f32", 4)                                                                               \
    X(F64, "f64", 8)                                                                               \
    X(C64, "c64", 8)

enum dtype {
#define X(name, text, size) DTYPE_##name,
    DTYPE_LIST(X)
#undef X
        DTYPE_COUNT
};

enum op_kind { OP_MAP, OP_REDUCE };

/* What to do with a last record that is shorter than the others: bits of manifest_op.tails. */
enum tail { TAIL_ERROR, TAIL_ZERO, TAIL_SHORT, TAIL_COUNT };
#define TAIL_BIT(tail) (1u << (tail))

#define MANIFEST_ABI          2
#define MANIFEST_NAME_SIZE    32 /* all names, with their NUL */
#define MANIFEST_DIMS         4
#define MANIFEST_CHOICES      8
#define MANIFEST_FACTORS      2
#define MANIFEST_PARTIAL_SIZE 64  /* bytes of a reduce op's partial, at most */
#define MANIFEST_VARYING      "*" /* as a dimension's param: what the ends say */

/* A dimension: `fixed` elements, or, where fixed is 0, the value of the parameter called param. */
struct manifest_dim {
    uint32_t fixed;
    char param[MANIFEST_NAME_SIZE];
};

struct manifest_array {
    char name[MANIFEST_NAME_SIZE];
    uint32_t dtype;  /* enum dtype */
    uint32_t n_dims; /* 0: a record is one element */
    struct manifest_dim dims[MANIFEST_DIMS];
    uint32_t is_ends; /* of the varying input */
};

/* X(NAME, name, bytes in the packed parameters).  A choice is packed as the u32 index of its word.
 */
#define PARAM_TYPE_LIST(X)                                                                         \
    X(I32, "i32", 4)                                                                               \
    X(U32, "u32", 4)                                                                               \
    X(I64, "i64", 8)                                                                               \
    X(F32, "f32", 4)                                                                               \
    X(F64, "f64", 8)                                                                               \
    X(CHOICE, "choice", 4)

enum param_type {
#define X(name, text, size) PARAM_##name,
    PARAM_TYPE_LIST(X)
#undef X
        PARAM_COUNT
};

/* One parameter.  The i_ fields serve integers and choices, the f_ fields f32 and f64. */
struct manifest_param {
    char name[MANIFEST_NAME_SIZE];
    uint32_t type;   /* enum param_type */
    uint32_t offset; /* in the packed parameters: offsetof() in the op's parameter struct */
    uint32_t is_required;
    uint32_t is_bounded; /* floats: f_min and f_max hold; integers are always bounded */
    int64_t i_default, i_min, i_max;
    double f_default, f_min, f_max;
    uint32_t n_choices;
    char choices[MANIFEST_CHOICES][MANIFEST_NAME_SIZE];
    /* An integer is no less than the product of these integer parameters (a pitch than a row). */
    uint32_t n_at_least;
    char at_least[MANIFEST_FACTORS][MANIFEST_NAME_SIZE];
};

struct manifest_op {
    uint32_t abi;  /* MANIFEST_ABI */
    uint32_t kind; /* enum op_kind */
    char name[MANIFEST_NAME_SIZE];
    char doc[192];
    uint32_t n_in, n_consts, n_out, n_params;
    uint32_t params_size; /* bytes of the packed parameters */
    struct manifest_array in[LIMIT_IN];
    struct manifest_array consts[LIMIT_CONSTS];
    struct manifest_array out[LIMIT_OUT];
    struct manifest_param params[LIMIT_PARAMS];
    uint32_t tails;        /* TAIL_BIT()s beyond TAIL_ERROR, which every op has */
    uint32_t min_parallel; /* records a device needs at once to run at full speed; at least 1 */
    uint32_t leaf;         /* reduce: records of a leaf */
    uint32_t partial_size; /* reduce: bytes of a partial, a multiple of 8 */
    double tolerance;      /* ulps between backends; 0 = the same bits */
};

/* A parameter's value as a client sent it. */
enum value_kind { VALUE_INT, VALUE_FLOAT, VALUE_STRING };
struct value {
    char name[MANIFEST_NAME_SIZE];
    enum value_kind kind;
    int64_t i;
    double f;
    char s[MANIFEST_NAME_SIZE];
};

const char *dtype_name(enum dtype dtype);
uint32_t dtype_size(enum dtype dtype);
enum dtype dtype_from_name(const char *name); /* DTYPE_COUNT: no such type */
const char *param_type_name(enum param_type type);
enum param_type param_type_from_name(const char *name); /* PARAM_COUNT: no such type */

/* Is this op safe and complete?  INTERNAL with what is wrong otherwise. */
int manifest_check(const struct manifest_op *op, struct failure *ret_failure);

/*
 * Check values against the op's parameters and pack them, with defaults for what is missing.
 * Bytes between and after parameters are zero.  UNKNOWN, missing or mistyped: INVALID_PARAM;
 * outside min..max, less than at_least or an unknown choice: RANGE; each names the parameter and
 * what it may be.  A default that is less than at_least is raised to that.
 * An integer is accepted for a float; a float never for an integer; NaN only for an unbounded
 * float.
 */
int manifest_pack(const struct manifest_op *op, const struct value *values, uint32_t n_values,
                  uint8_t ret_params[LIMIT_PARAM_BYTES], struct failure *ret_failure);

/* Index of the varying input (0: there is none, input 0 never is), and of the one with its ends. */
uint32_t manifest_varying(const struct manifest_op *op);
uint32_t manifest_ends(const struct manifest_op *op);

/*
 * Bytes of one record of this array, of one element if it is varying, under these packed
 * parameters.  TOO_BIG past LIMIT_RECORD,
 * RANGE where it would be 0 bytes.
 */
int manifest_record_size(const struct manifest_op *op, const struct manifest_array *array,
                         const uint8_t *params, uint32_t *ret_size, struct failure *ret_failure);
