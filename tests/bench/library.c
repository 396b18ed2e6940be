/*
 * Library: OpenSSL and parasail, each where the build has found it.  See library.h.
 */
#include "tests/bench/library.h"

#include "proto/util.h"
#include "tests/bench/bench.h"

#include <string.h>

#ifdef HAVE_OPENSSL
#include <openssl/evp.h>

static double run_openssl(const struct library_work *work)
{
    const size_t block = *(const uint32_t *)work->params;
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    uint64_t start_ns = now_ns();

    for (uint32_t i = 0; i < work->n_records; i++) {
        if (EVP_DigestInit_ex(context, i == 0 ? EVP_sha256() : NULL, NULL) != 1 ||
            EVP_DigestUpdate(context, (const uint8_t *)work->in[0] + i * block, block) != 1 ||
            EVP_DigestFinal_ex(context, (uint8_t *)work->out + (size_t)i * 32, NULL) != 1) {
            bench_fail("OpenSSL failed");
        }
    }
    start_ns = now_ns() - start_ns;
    EVP_MD_CTX_free(context);
    return (double)start_ns * 1e-9;
}
#endif

#ifdef HAVE_PARASAIL
#include <parasail.h>

/* As align_score packs them. */
struct align_params {
    uint32_t length, match, mismatch, gap_open, gap_extend, band;
};

static double run_parasail(const struct library_work *work)
{
    const struct align_params *params = work->params;
    parasail_matrix_t *matrix =
        parasail_matrix_create("ACGT", (int)params->match, -(int)params->mismatch);
    const int length = (int)params->length;
    uint64_t start_ns = now_ns();

    for (uint32_t i = 0; i < work->n_records; i++) {
        const size_t at = (size_t)i * params->length;
        parasail_result_t *result = parasail_sw_striped_16(
            (const char *)work->in[0] + at, length, (const char *)work->in[1] + at, length,
            (int)params->gap_open, (int)params->gap_extend, matrix);

        ((int32_t *)work->out)[i] = parasail_result_get_score(result);
        parasail_result_free(result);
    }
    start_ns = now_ns() - start_ns;
    parasail_matrix_free(matrix);
    return (double)start_ns * 1e-9;
}
#endif

library_function *library_find(const char *op)
{
#ifdef HAVE_OPENSSL
    if (strcmp(op, "sha256") == 0) {
        return run_openssl;
    }
#endif
#ifdef HAVE_PARASAIL
    if (strcmp(op, "align_score") == 0) {
        return run_parasail;
    }
#endif
    (void)op;
    return NULL;
}
