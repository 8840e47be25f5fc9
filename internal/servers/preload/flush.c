// A library that makes every flush of a file take longer, for LD_PRELOAD. The delay in nanoseconds is the int64 at the
// beginning of the file that the variable STOCK_FLUSH names, and may change at any time.

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *delay; // null until start has run

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("STOCK_FLUSH");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *page = mmap(NULL, sizeof *delay, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (page != MAP_FAILED)
        delay = page;
}

static void pause_before(void) {
    int64_t ns = delay ? *delay : 0;
    if (ns > 0) {
        prctl(PR_SET_TIMERSLACK, 1L); // otherwise, it takes 50 us longer
        nanosleep(&(struct timespec){ns / 1000000000, ns % 1000000000}, NULL);
    }
}

int fsync(int file) {
    pause_before();
    return syscall(SYS_fsync, file);
}

int fdatasync(int file) {
    pause_before();
    return syscall(SYS_fdatasync, file);
}
