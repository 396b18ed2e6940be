/*
 * Own: two pipes to each process.  See own.h.
 */
#include "tests/bench/own.h"

#include "tests/bench/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static _Noreturn void become(const char *path, const char *what, const char *argument, int in_fd,
                             int out_fd)
{
    dup2(in_fd, STDIN_FILENO);
    dup2(out_fd, STDOUT_FILENO);
    execl(path, "own-context", what, argument, NULL);
    fprintf(stderr, "%s: %s\n", path, strerror(errno));
    _exit(127);
}

static void start(struct own *own, const char *what, const char *argument)
{
    char path[PATH_MAX + 32];
    int to[2], from[2];

    bench_find("tests/bench/own-context", path, sizeof(path));
    if (pipe2(to, O_CLOEXEC) < 0 || pipe2(from, O_CLOEXEC) < 0) {
        bench_fail("pipe: %s", strerror(errno));
    }
    own->pid = bench_fork();
    if (own->pid == 0) {
        become(path, what, argument, to[0], from[1]);
    }
    close(to[0]);
    close(from[1]);
    own->to_fd = to[1];
    own->from_fd = from[0];
}

static void read_line(const struct own *own, char *ret_line, size_t size)
{
    size_t n = 0;

    while (n + 1 < size && read(own->from_fd, ret_line + n, 1) == 1 && ret_line[n] != '\n') {
        n++;
    }
    if (n == 0) {
        bench_fail("own-context ended early");
    }
    ret_line[n] = '\0';
}

void own_start_holder(struct own *own, uint32_t mib)
{
    char argument[16], line[32];

    snprintf(argument, sizeof(argument), "%u", mib);
    start(own, "hold", argument);
    read_line(own, line, sizeof(line));
}

void own_start_watcher(struct own *own)
{
    start(own, "watch", NULL);
}

void own_stop(struct own *own)
{
    close(own->to_fd);
    close(own->from_fd);
    waitpid(own->pid, NULL, 0);
}

double own_free_memory(const struct own *watcher)
{
    char line[32];

    if (write(watcher->to_fd, "\n", 1) != 1) {
        bench_fail("own-context ended early");
    }
    read_line(watcher, line, sizeof(line));
    return strtod(line, NULL);
}
