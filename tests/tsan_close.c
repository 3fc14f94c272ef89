/* Linked into programs with libuv under the thread sanitizer. libuv closes descriptors by
 * syscall(SYS_close), which the sanitizer does not see, so the number's next user, on another
 * thread, seemed to race with whoever had it before. Built with clang's sanitizer libuv says so
 * itself; here that is said for the library as it is installed. */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/syscall.h>

/* Of the sanitizer's runtime (sanitizer/linux_syscall_hooks.h, which gcc does not install). */
void __sanitizer_syscall_pre_impl_close(long fd);

long syscall(long number, ...);

long syscall(long number, ...)
{
    static _Atomic(void *) found;
    if (atomic_load(&found) == NULL)
        atomic_store(&found, dlsym(RTLD_NEXT, "syscall"));
    long (*real)(long, ...);
    *(void **)&real = atomic_load(&found);
    long words[6];
    va_list args;
    va_start(args, number);
    for (int i = 0; i < 6; i++)
        words[i] = va_arg(args, long); /* all that a call can have; the kernel takes its own */
    va_end(args);
    if (number == SYS_close)
        __sanitizer_syscall_pre_impl_close(words[0]);
    return real(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}
