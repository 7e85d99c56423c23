/* Included before SQLite: locks on files, which the C library lacks. */
#include <fcntl.h>
#include <stdarg.h>

#define F_RDLCK 0
#define F_WRLCK 1
#define F_UNLCK 2
#define F_GETLK 5
#define F_SETLK 6
#define F_SETLKW 7

/* What SQLite calls for `fcntl`. Locks that other processes hold cannot be seen from here, and ours not by them; between
   the connections of one kernel SQLite keeps account itself, and asks this only for the first lock on a file. */
static inline int sqlite_fcntl(int fd, int command, ...) {
    va_list arguments;
    va_start(arguments, command);
    int value = 0;
    if (command == F_GETLK)
        va_arg(arguments, struct flock *)->l_type = F_UNLCK;
    else if (command != F_SETLK && command != F_SETLKW)
        value = fcntl(fd, command, va_arg(arguments, int));
    va_end(arguments);
    return value;
}

#define fcntl sqlite_fcntl
