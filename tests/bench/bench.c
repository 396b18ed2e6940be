/*
 * Bench: processes, data, numbers and reports.  See bench.h.
 */
#include "tests/bench/bench.h"

#include "proto/util.h"

#include <assert.h>
#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#define START_PATIENCE_S 20
#define POISON           0xa5
#define EXIT_SKIPPED     77

void bench_fail(const char *format, ...)
{
    va_list args;

    fflush(stdout);
    fprintf(stderr, "%s: ", program_invocation_short_name);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(EXIT_FAILURE);
}

/* ---- processes ------------------------------------------------------------------------------ */

pid_t bench_fork(void)
{
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (pid < 0) {
        bench_fail("fork: %s", strerror(errno));
    }
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    return pid;
}

void bench_become(uid_t uid)
{
    if (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0) {
        bench_fail("cannot go on as user %u: %s", (unsigned)uid, strerror(errno));
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a new user clears it */
}

void bench_end(pid_t pid)
{
    kill(pid, SIGTERM);
    waitpid(pid, NULL, 0);
}

/* Where a program of this project lies, seen from the benchmarks: as built, or in a bundle. */
static bool find(const char *program, char *ret_path, size_t size)
{
    static const char *const folders[] = {"bin", "libexec/gpupipe"};
    const char *name = strrchr(program, '/') + 1;
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    if (n < 0) {
        bench_fail("no /proc");
    }
    self[n] = '\0';
    *strrchr(self, '/') = '\0';
    int length = snprintf(ret_path, size, "%s/../../%s", self, program);
    for (unsigned i = 0; i < 2 && (size_t)length < size && access(ret_path, X_OK) != 0; i++) {
        length = snprintf(ret_path, size, "%s/../../%s/%s", self, folders[i], name);
    }
    return (size_t)length < size && access(ret_path, X_OK) == 0;
}

void bench_find(const char *program, char *ret_path, size_t size)
{
    if (!find(program, ret_path, size)) {
        bench_fail("there is no %s beside the benchmarks", strrchr(program, '/') + 1);
    }
}

void bench_need_backend(const char *backend)
{
    char program[64], path[PATH_MAX], command[PATH_MAX + 64];

    snprintf(program, sizeof(program), "cuda/gpupipe-worker-%s", backend);
    if (find(program, path, sizeof(path))) {
        snprintf(command, sizeof(command), "'%s' --probe >/dev/null 2>&1", path);
        if (system(command) == 0) {
            return;
        }
    }
    printf("skipped: no device for backend %s\n", backend);
    exit(EXIT_SKIPPED);
}

uint32_t bench_count_devices(const char *backend)
{
    char program[64], path[PATH_MAX + 32], command[PATH_MAX + 64], line[256];
    uint32_t n = 1;
    FILE *output;

    snprintf(program, sizeof(program), "cuda/gpupipe-worker-%s", backend);
    bench_find(program, path, sizeof(path));
    snprintf(command, sizeof(command), "'%s' --probe", path);
    output = popen(command, "re");
    while (output != NULL && fgets(line, sizeof(line), output) != NULL) {
        sscanf(line, "devices=%u", &n);
    }
    if (output == NULL || pclose(output) != 0) {
        bench_fail("%s does not work", command);
    }
    return n;
}

/* Does it answer a ping?  It takes connections from its start on and serves them once READY. */
static bool answers(const char *socket_path)
{
    static const char ping[] = "\x94\x00\x01\xa4ping\x90";
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval patience = {.tv_sec = START_PATIENCE_S};
    char byte;
    _cleanup_(close_fd) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    memcpy(address.sun_path, socket_path, strlen(socket_path));
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    return connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0 &&
           send(fd, ping, sizeof(ping) - 1, MSG_NOSIGNAL) == sizeof(ping) - 1 &&
           recv(fd, &byte, 1, 0) == 1;
}

static bool is_worker(pid_t pid)
{
    char path[64], name[PATH_MAX] = "";
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
    file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    size_t n = fread(name, 1, sizeof(name) - 1, file);
    fclose(file);
    return n > 0 && strstr(name, "gpupipe-worker-") != NULL;
}

/* The worker among the daemon's children; 0 = none. */
static pid_t find_worker(pid_t daemon)
{
    char path[64];
    pid_t worker = 0;
    int child;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)daemon, (int)daemon);
    file = fopen(path, "re");
    while (file != NULL && worker == 0 && fscanf(file, "%d", &child) == 1) {
        worker = is_worker(child) ? child : 0;
    }
    if (file != NULL) {
        fclose(file);
    }
    return worker;
}

static _Noreturn void become_daemon(const struct bench_daemon *daemon, const char *path,
                                    const char *backend)
{
    const char *first = strcmp(backend, "cpu") == 0 ? "cpu0" : "0";
    const char *devices = daemon->devices != NULL ? daemon->devices : first;

    /* An older daemon, of bench_compare, has no rings. */
    execl(path, path, "--socket", daemon->socket_path, "--backend", backend, "--devices", devices,
          "--log-level", "warning", daemon->ring_pool != NULL ? "--ring-pool" : NULL,
          daemon->ring_pool, NULL);
    fprintf(stderr, "%s: %s\n", path, strerror(errno));
    _exit(127);
}

static struct bench_daemon *running;

/* The program ends before it has stopped them.  A child that ends has them from who forked it. */
static void remove_folders(void)
{
    char command[sizeof(running->folder) + 16];

    for (const struct bench_daemon *daemon = running; daemon != NULL; daemon = daemon->next) {
        snprintf(command, sizeof(command), "rm -rf '%s'", daemon->folder);
        if (daemon->starter == getpid() && system(command) != 0) {
            fprintf(stderr, "%s could not be removed\n", daemon->folder);
        }
    }
}

static void note_running(struct bench_daemon *daemon)
{
    static bool is_registered;

    if (!is_registered) {
        is_registered = true;
        atexit(remove_folders);
    }
    daemon->starter = getpid();
    daemon->next = running;
    running = daemon;
}

static void note_stopped(const struct bench_daemon *daemon)
{
    struct bench_daemon **at = &running;

    while (*at != daemon) {
        at = &(*at)->next;
    }
    *at = daemon->next;
}

void bench_daemon_start(struct bench_daemon *daemon, const char *path, const char *backend)
{
    char built[PATH_MAX + 32];
    uint64_t start_ns = now_ns();

    if (path == NULL) {
        bench_find("daemon/gpupiped", built, sizeof(built));
        path = built;
    }
    snprintf(daemon->folder, sizeof(daemon->folder), "/tmp/gpupipe-bench-XXXXXX");
    if (mkdtemp(daemon->folder) == NULL) {
        bench_fail("%s: %s", daemon->folder, strerror(errno));
    }
    note_running(daemon);
    snprintf(daemon->socket_path, sizeof(daemon->socket_path), "%s/rpc.sock", daemon->folder);
    daemon->pid = bench_fork();
    if (daemon->pid == 0) {
        become_daemon(daemon, path, backend);
    }
    while (!answers(daemon->socket_path)) {
        if (waitpid(daemon->pid, NULL, WNOHANG) == daemon->pid ||
            now_ns() - start_ns > START_PATIENCE_S * UINT64_C(1000000000)) {
            bench_fail("%s did not start", path);
        }
        usleep(10000);
    }
    daemon->worker = find_worker(daemon->pid);
    if (daemon->worker == 0) {
        bench_fail("%s has no worker", path);
    }
}

void bench_daemon_stop(struct bench_daemon *daemon)
{
    char lock_path[sizeof(daemon->socket_path) + 8];

    bench_end(daemon->pid);
    snprintf(lock_path, sizeof(lock_path), "%s.lock", daemon->socket_path);
    unlink(lock_path);
    rmdir(daemon->folder);
    note_stopped(daemon);
}

void bench_daemon_admit_all(const struct bench_daemon *daemon)
{
    if (chmod(daemon->folder, 0711) < 0 || chmod(daemon->socket_path, 0666) < 0) {
        bench_fail("%s: %s", daemon->socket_path, strerror(errno));
    }
}

/* The fields utime and stime follow the name, which may contain anything but ends with ')'. */
static double system_share(pid_t pid)
{
    char path[64], text[1024] = "";
    unsigned long user, system;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    file = fopen(path, "re");
    if (file == NULL) {
        bench_fail("%s: %s", path, strerror(errno));
    }
    size_t n = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    const char *at = n > 0 ? strrchr(text, ')') : NULL;
    if (at == NULL ||
        sscanf(at, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2) {
        bench_fail("%s has an unknown form", path);
    }
    return (double)system / (double)sysconf(_SC_CLK_TCK);
}

struct bench_usage bench_usage(pid_t pid)
{
    struct timespec used;
    clockid_t clock;

    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &used) < 0) {
        bench_fail("process %d ended", (int)pid);
    }
    return (struct bench_usage){
        .cpu_s = (double)used.tv_sec + (double)used.tv_nsec * 1e-9,
        .system_s = system_share(pid != 0 ? pid : getpid()),
    };
}

struct bench_usage bench_usage_since(pid_t pid, const struct bench_usage *start)
{
    struct bench_usage now = bench_usage(pid);

    return (struct bench_usage){now.cpu_s - start->cpu_s, now.system_s - start->system_s};
}

double bench_rss_kib(pid_t pid)
{
    char path[64], line[256];
    double kib = -1;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)pid);
    file = fopen(path, "re");
    while (file != NULL && kib < 0 && fgets(line, sizeof(line), file) != NULL) {
        sscanf(line, "Rss: %lf", &kib);
    }
    if (kib < 0) {
        bench_fail("%s cannot be read", path);
    }
    fclose(file);
    return kib;
}

/* ---- data ----------------------------------------------------------------------------------- */

void *bench_allocate(size_t size)
{
    void *bytes;

    if (posix_memalign(&bytes, 4096, size) != 0) {
        bench_fail("no memory for %zu bytes", size);
    }
    return bytes;
}

/* splitmix64, seeded by the kernel each time. */
void bench_fill(void *bytes, size_t size)
{
    uint8_t *at = bytes;
    uint64_t state;

    if (getrandom(&state, sizeof(state), 0) != sizeof(state)) {
        bench_fail("getrandom: %s", strerror(errno));
    }
    while (size > 0) {
        uint64_t word = state += UINT64_C(0x9e3779b97f4a7c15);
        size_t n = MIN(size, sizeof(word));

        word = (word ^ (word >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        word = (word ^ (word >> 27)) * UINT64_C(0x94d049bb133111eb);
        word ^= word >> 31;
        memcpy(at, &word, n);
        at += n;
        size -= n;
    }
}

void bench_poison(void *bytes, size_t size)
{
    memset(bytes, POISON, size);
}

void bench_check_same(const char *what, const void *got, const void *want, size_t size)
{
    const uint8_t *a = got, *b = want;

    if (memcmp(a, b, size) == 0) {
        return;
    }
    size_t at = 0;
    while (a[at] == b[at]) {
        at++;
    }
    bench_fail("%s: wrong result: byte %zu of %zu is %02x, not %02x", what, at, size, a[at], b[at]);
}

void bench_shuffle(uint32_t *ret_order, uint32_t n)
{
    uint32_t random[64];

    assert(n <= ARRAY_SIZE(random));
    bench_fill(random, sizeof(random));
    for (uint32_t i = 0; i < n; i++) {
        uint32_t j = random[i] % (i + 1);

        ret_order[i] = ret_order[j];
        ret_order[j] = i;
    }
}

/* ---- numbers -------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double bench_median(double *values, size_t n)
{
    qsort(values, n, sizeof(*values), compare);
    return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

double bench_quantile(double *values, size_t n, double share)
{
    size_t rank = (size_t)(share * (double)n);

    qsort(values, n, sizeof(*values), compare);
    return values[MIN(rank, n - 1)];
}

struct bench_report {
    FILE *json;
    bool has_tables;
    bool has_rows; /* in the table under way */
};

struct bench_report *bench_report_create(const char *benchmark, const char *json_path)
{
    struct bench_report *report = calloc(1, sizeof(*report));

    if (report == NULL) {
        bench_fail("no memory for the report");
    }
    if (json_path != NULL) {
        report->json = fopen(json_path, "we");
        if (report->json == NULL) {
            bench_fail("%s: %s", json_path, strerror(errno));
        }
        fprintf(report->json, "{\"benchmark\": \"%s\", \"tables\": {", benchmark);
    }
    return report;
}

static void end_table(struct bench_report *report)
{
    if (report->json != NULL && report->has_tables) {
        fputs("]", report->json);
    }
}

void bench_report_table(struct bench_report *report, const char *title, const char *explanation)
{
    end_table(report);
    printf("%s%s: %s\n", report->has_tables ? "\n" : "", title, explanation);
    if (report->json != NULL) {
        fprintf(report->json, "%s\n\"%s\": [", report->has_tables ? "," : "", title);
    }
    report->has_tables = true;
    report->has_rows = false;
}

static int cell_width(const struct bench_cell *cell)
{
    return (int)MAX(strlen(cell->name), (size_t)7);
}

static void print_headings(const struct bench_cell *cells, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        printf("%s%*s", i > 0 ? "  " : "", cell_width(&cells[i]), cells[i].name);
    }
    putchar('\n');
}

static void print_row(const struct bench_cell *cells, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        printf("%s", i > 0 ? "  " : "");
        if (cells[i].text != NULL || isnan(cells[i].number)) {
            printf("%*s", cell_width(&cells[i]), cells[i].text != NULL ? cells[i].text : "-");
        } else {
            printf("%*.*f", cell_width(&cells[i]), cells[i].n_decimals, cells[i].number);
        }
    }
    putchar('\n');
    fflush(stdout);
}

static void write_row(FILE *json, const struct bench_cell *cells, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        fprintf(json, "%s\"%s\": ", i > 0 ? ", " : "", cells[i].name);
        if (cells[i].text != NULL) {
            fprintf(json, "\"%s\"", cells[i].text);
        } else if (isnan(cells[i].number)) {
            fputs("null", json);
        } else {
            fprintf(json, "%.9g", cells[i].number);
        }
    }
}

void bench_report_row(struct bench_report *report, const struct bench_cell *cells, size_t n)
{
    if (!report->has_rows) {
        print_headings(cells, n);
    }
    print_row(cells, n);
    if (report->json != NULL) {
        fputs(report->has_rows ? ",\n{" : "\n{", report->json);
        write_row(report->json, cells, n);
        fputs("}", report->json);
    }
    report->has_rows = true;
}

void bench_report_claim(struct bench_report *report, const char *claim, double ratio, double bound)
{
    const struct bench_cell row[] = {
        {"claim                                   ", claim, 0, 0},
        {"ratio", NULL, ratio, 3},
        {"at_least", NULL, bound, 2},
        {"reached", ratio >= bound ? "yes" : "no", 0, 0},
    };

    bench_report_row(report, row, ARRAY_SIZE(row));
}

void bench_report_limit(struct bench_report *report, const char *limit, double figure, double bound)
{
    const char *reached = figure <= bound ? "yes" : "no";
    const struct bench_cell row[] = {
        {"limit                                   ", limit, 0, 0},
        {"figure", NULL, figure, 3},
        {"at_most", NULL, bound, 2},
        {"reached", isnan(bound) ? "stated" : reached, 0, 0},
    };

    bench_report_row(report, row, ARRAY_SIZE(row));
}

void bench_report_destroy(struct bench_report *report)
{
    end_table(report);
    if (report->json != NULL) {
        fputs("\n}}\n", report->json);
        if (fclose(report->json) != 0) {
            bench_fail("cannot write the JSON file: %s", strerror(errno));
        }
    }
    free(report);
}
