/* `doctor`: is everything there that tuning needs, and what to do about what is not. It starts no
 * daemon: a machine is examined as it is. */
#include "tunectl.h"
#include "print.h"

#include "client/proto.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int run_doctor(struct tunectl *ctl, const struct args *args)
{
    (void)ctl;
    (void)args;
    return CTL_FAILED;
}
