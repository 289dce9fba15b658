/* The time of day, moved by as many seconds as the file SET_CLOCK holds (8 bytes, as of this machine).

Preloaded (LD_PRELOAD) into each process of a test, which moves the clock of all of them by writing
the file. Clocks that never jump stay as they are: sleeps, locks and timeouts take real seconds. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *moved;

__attribute__((constructor)) static void open_clock(void) {
    const char *path = getenv("SET_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *held = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *moved, PROT_READ, MAP_SHARED, file, 0);
    if (held == MAP_FAILED) abort();
    moved = held;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && moved && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += *moved;
    return failed;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec read;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &read)) return -1;
    now->tv_sec = read.tv_sec;
    now->tv_usec = read.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now) {
    struct timespec read;
    clock_gettime(CLOCK_REALTIME, &read);
    if (now) *now = read.tv_sec;
    return read.tv_sec;
}
