/*
 * Pillow: a line with the question and the image's bytes go to the child, bytes come back.  See
 * pillow.h.
 */
#include "tests/ops/pillow.h"

#include "tests/check.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* Since Pillow 12.2 tall images are made shorter first; in two steps it has no choice. */
static const char script[] =
    "import sys\n"
    "from PIL import Image\n"
    "source, sink = sys.stdin.buffer, sys.stdout.buffer\n"
    "def say(answer):\n"
    "    sink.write(answer)\n"
    "    sink.flush()\n"
    "def read(modes, width, height, channels, pitch):\n"
    "    return Image.frombytes(modes[channels - 1], (width, height),\n"
    "        source.read(pitch * height), 'raw', modes[channels - 1], pitch)\n"
    "def resize(image, width, height, filter):\n"
    "    if image.height > 100 * image.width:\n"
    "        image = image.resize((width, image.height), filter)\n"
    "    return image.resize((width, height), filter)\n"
    "def dhash(image, filter):\n"
    "    small = resize(image.convert('L'), 9, 8, filter).tobytes()\n"
    "    pairs = [(small[9 * y + x], small[9 * y + x + 1]) for y in range(8) for x in range(8)]\n"
    "    return int(''.join('01'[right > left] for left, right in pairs), 2)\n"
    "say(b'!')\n"
    "for line in source:\n"
    "    what, filter, *numbers = line.decode().split()\n"
    "    filter, numbers = Image.Resampling[filter.upper()], [int(n) for n in numbers]\n"
    "    if what == 'resize':\n"
    "        image = read(('L', None, 'RGB', 'CMYK'), *numbers[:4])\n"
    "        say(resize(image, *numbers[4:], filter).tobytes())\n"
    "    else:\n"
    "        image = read(('L', 'LA', 'RGB', 'RGBA'), *numbers)\n"
    "        say(dhash(image, filter).to_bytes(8, 'little'))\n";

static struct {
    pid_t pid;
    FILE *to, *from;
} pillow;

static void stop(void *arg)
{
    (void)arg;
    fclose(pillow.to);
    fclose(pillow.from);
    waitpid(pillow.pid, NULL, 0);
}

_Noreturn static void become_python(int fd)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(fd, STDIN_FILENO);
    dup2(fd, STDOUT_FILENO);
    execl("/usr/bin/python3", "python3", "-c", script, (char *)NULL);
    _exit(127);
}

static void receive(void *ret_bytes, size_t size)
{
    CHECK_EQ(fread(ret_bytes, 1, size, pillow.from), size);
}

void pillow_start(void)
{
    int fds[2];

    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    pillow.pid = fork();
    CHECK_GE(pillow.pid, 0);
    if (pillow.pid == 0) {
        become_python(fds[1]);
    }
    close(fds[1]);
    pillow.to = fdopen(dup(fds[0]), "w");
    pillow.from = fdopen(fds[0], "r");
    check_at_end(stop, NULL);
    if (getc(pillow.from) != '!') {
        CHECK_SKIP("Python has no Pillow (Debian's python3-pil)");
    }
}

static void ask(const char *what, const struct pillow_image *image, const char *filter,
                const char *more)
{
    fprintf(pillow.to, "%s %s %u %u %u %u%s\n", what, filter, image->width, image->height,
            image->channels, image->pitch, more);
    fwrite(image->bytes, image->pitch, image->height, pillow.to);
    CHECK_EQ(fflush(pillow.to), 0);
}

void pillow_resize(const struct pillow_image *image, uint32_t out_width, uint32_t out_height,
                   const char *filter, uint8_t *ret_bytes)
{
    char more[32];

    snprintf(more, sizeof(more), " %u %u", out_width, out_height);
    ask("resize", image, filter, more);
    receive(ret_bytes, (size_t)out_width * out_height * image->channels);
}

uint64_t pillow_dhash(const struct pillow_image *image, const char *filter)
{
    uint64_t hash;

    ask("dhash", image, filter, "");
    receive(&hash, sizeof(hash));
    return hash;
}
