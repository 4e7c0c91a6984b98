#include <sys/syscall.h>

// A system call that no library sees.
static inline long unseen(long number, long a, long b, long c) {
    long result;
#if defined __x86_64__
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
#else
    result = syscall(number, a, b, c);
#endif
    return result;
}
