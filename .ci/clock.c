/* A clock that is SHIFT seconds ahead, or behind where that is negative, for the processes that load it. Clocks that only count
 * stay as they are. Times of files are moved as Rust's library reads and sets them, by `statx` and `futimens`; what asks in another way,
 * as cells' files do, sees them as they are. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *at) {
	static int (*real)(clockid_t, struct timespec *);
	if (!real) {
		real = dlsym(RTLD_NEXT, "clock_gettime");
	}
	int failed = real(clock, at);
	if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
		at->tv_sec += SHIFT;
	}
	return failed;
}

int timespec_get(struct timespec *at, int base) {
	return base == TIME_UTC && !clock_gettime(CLOCK_REALTIME, at) ? base : 0;
}

time_t time(time_t *seconds) {
	struct timespec at;
	clock_gettime(CLOCK_REALTIME, &at);
	if (seconds) {
		*seconds = at.tv_sec;
	}
	return at.tv_sec;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
	(void)zone;
	struct timespec at;
	clock_gettime(CLOCK_REALTIME, &at);
	time->tv_sec = at.tv_sec;
	time->tv_usec = at.tv_nsec / 1000;
	return 0;
}

/* The kernel waits for moments of its own clock. A moment before 2001 is one of the clock that counts from the start of the machine. */
int pthread_cond_timedwait(void *condition, void *mutex, const struct timespec *until) {
	static int (*real)(void *, void *, clockid_t, const struct timespec *);
	if (!real) {
		real = dlsym(RTLD_NEXT, "pthread_cond_clockwait");
	}
	if (until->tv_sec < 1000000000) {
		return real(condition, mutex, CLOCK_MONOTONIC, until);
	}
	struct timespec at = *until;
	at.tv_sec -= SHIFT;
	return real(condition, mutex, CLOCK_REALTIME, &at);
}

int statx(int folder, const char *restrict path, int flags, unsigned int mask, struct statx *restrict found) {
	static int (*real)(int, const char *, int, unsigned int, struct statx *);
	if (!real) {
		real = dlsym(RTLD_NEXT, "statx");
	}
	int failed = real(folder, path, flags, mask, found);
	if (!failed) {
		found->stx_atime.tv_sec += SHIFT;
		found->stx_btime.tv_sec += SHIFT;
		found->stx_ctime.tv_sec += SHIFT;
		found->stx_mtime.tv_sec += SHIFT;
	}
	return failed;
}

int futimens(int file, const struct timespec times[2]) {
	static int (*real)(int, const struct timespec *);
	if (!real) {
		real = dlsym(RTLD_NEXT, "futimens");
	}
	struct timespec moved[2];
	for (int n = 0; times && n < 2; n++) {
		moved[n] = times[n];
		if (times[n].tv_nsec != UTIME_NOW && times[n].tv_nsec != UTIME_OMIT) {
			moved[n].tv_sec -= SHIFT;
		}
	}
	return real(file, times ? moved : times);
}
