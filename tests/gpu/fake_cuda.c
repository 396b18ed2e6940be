/*
 * Fake CUDA: a libcuda.so.1 that fails as a driver does on a machine where something is wrong.  A
 * worker finds it through LD_LIBRARY_PATH, and is steered through its environment:
 *
 *     FAKE_CUDA_VERSION=12020     the CUDA version that the driver knows (default: 13.0)
 *     FAKE_CUDA_INIT=46           what cuInit() returns (default: CUDA_ERROR_NO_DEVICE) ...
 *     FAKE_CUDA_VISIBLE=2         ... but only while CUDA_VISIBLE_DEVICES says this; else NO_DEVICE
 *     FAKE_CUDA_ENVIRON=FILE      what cuInit() writes the environment to that it sees
 *
 * The CUDA runtime looks up some 400 functions and calls two of them before cuInit() has succeeded;
 * this one never succeeds, so the rest need only be there.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, NO_DEVICE = 100, NOT_SUPPORTED = 801 };

#define DRIVER_VERSION 13000

int cuInit(unsigned flags);
int cuDriverGetVersion(int *ret_version);
int cuGetExportTable(const void **ret_table, const void *id);
int cuGetProcAddress(const char *name, void **ret_function, int version, uint64_t flags);
int cuGetProcAddress_v2(const char *name, void **ret_function, int version, uint64_t flags,
                        int *ret_status);

static int number(const char *name, int otherwise)
{
    const char *text = getenv(name);

    return text != NULL ? atoi(text) : otherwise;
}

static void write_environment(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    for (char **line = environ; fd >= 0 && *line != NULL; line++) {
        dprintf(fd, "%s\n", *line);
    }
    close(fd);
}

int cuInit(unsigned flags)
{
    const char *wanted = getenv("FAKE_CUDA_VISIBLE"), *visible = getenv("CUDA_VISIBLE_DEVICES");
    const char *path = getenv("FAKE_CUDA_ENVIRON");

    (void)flags;
    if (path != NULL) {
        write_environment(path);
    }
    if (wanted != NULL && (visible == NULL || strcmp(visible, wanted) != 0)) {
        return NO_DEVICE;
    }
    return number("FAKE_CUDA_INIT", NO_DEVICE);
}

int cuDriverGetVersion(int *ret_version)
{
    *ret_version = number("FAKE_CUDA_VERSION", DRIVER_VERSION);
    return SUCCESS;
}

static int refuse(void)
{
    return NOT_SUPPORTED;
}

int cuGetExportTable(const void **ret_table, const void *id)
{
    (void)ret_table, (void)id;
    return NOT_SUPPORTED;
}

static const struct function {
    const char *name;
    void *function;
} functions[] = {
    {"cuInit", cuInit},
    {"cuDriverGetVersion", cuDriverGetVersion},
    {"cuGetExportTable", cuGetExportTable},
    {"cuGetProcAddress", cuGetProcAddress_v2},
};

int cuGetProcAddress_v2(const char *name, void **ret_function, int version, uint64_t flags,
                        int *ret_status)
{
    (void)version, (void)flags;
    *ret_function = refuse;
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        if (strcmp(functions[i].name, name) == 0) {
            *ret_function = functions[i].function;
        }
    }
    if (ret_status != NULL) {
        *ret_status = 0;
    }
    return SUCCESS;
}

int cuGetProcAddress(const char *name, void **ret_function, int version, uint64_t flags)
{
    return cuGetProcAddress_v2(name, ret_function, version, flags, NULL);
}
