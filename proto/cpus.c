/*
 * CPUs: sched_getaffinity() and cpu.max.  See Documentation/admin-guide/cgroup-v2.rst of Linux: the
 * file has "max PERIOD" or "QUOTA PERIOD", in microseconds.
 */
#include "proto/cpus.h"

#include "proto/util.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#define CGROUP_ROOT "/sys/fs/cgroup"
#define PATH_SIZE   4096

static uint32_t count_affinity(void)
{
    int n_cpus = 0;

    for (int n = CPU_SETSIZE; n_cpus == 0 && n <= (1 << 20); n *= 2) {
        size_t size = CPU_ALLOC_SIZE(n);
        cpu_set_t *set = CPU_ALLOC(n);

        if (set != NULL && sched_getaffinity(0, size, set) == 0) {
            n_cpus = CPU_COUNT_S(size, set);
        }
        CPU_FREE(set);
    }
    return n_cpus > 0 ? (uint32_t)n_cpus : 1;
}

static uint32_t read_quota(const char *root, const char *cgroup)
{
    unsigned long long quota, period;
    char path[2 * PATH_SIZE];
    FILE *file;
    int n;

    snprintf(path, sizeof(path), "%s%s/cpu.max", root, cgroup);
    file = fopen(path, "re");
    if (file == NULL) { /* the root has none */
        return CPUS_NO_QUOTA;
    }
    n = fscanf(file, "%llu %llu", &quota, &period);
    fclose(file);
    if (n != 2 || period == 0) {
        return CPUS_NO_QUOTA;
    }
    quota = MAX(quota / period, 1ull);
    return (uint32_t)MIN(quota, (unsigned long long)CPUS_NO_QUOTA);
}

uint32_t cpus_quota(const char *root, const char *cgroup)
{
    uint32_t quota = CPUS_NO_QUOTA;
    char path[PATH_SIZE];
    char *slash;

    snprintf(path, sizeof(path), "%s", cgroup);
    while ((slash = strrchr(path, '/')) != NULL) {
        quota = MIN(quota, read_quota(root, path));
        *slash = '\0';
    }
    return quota;
}

/* "0::/a/b" is the line of version 2. */
static void read_cgroup(char *ret_cgroup, size_t size)
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    char line[PATH_SIZE];

    ret_cgroup[0] = '\0';
    if (file == NULL) {
        return;
    }
    while (fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "0::", 3) == 0) {
            snprintf(ret_cgroup, size, "%.*s", (int)strcspn(line + 3, "\n"), line + 3);
        }
    }
    fclose(file);
}

uint32_t cpus_usable(void)
{
    char cgroup[PATH_SIZE];

    read_cgroup(cgroup, sizeof(cgroup));
    return MIN(count_affinity(), cpus_quota(CGROUP_ROOT, cgroup));
}
