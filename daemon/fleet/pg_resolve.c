/* Host names to addresses, with a deadline. libpq would look them up by itself and block in that
 * for as long as the name service takes (tens of seconds with a dead one), so a thread of its own
 * does it; when it is too slow it is left behind, and frees what it has when it is done. libpq is
 * given both, name (for the certificate) and address; a name with several addresses becomes several
 * hosts, tried in order. */
#include "daemon/fleet/pg.h"

#include "daemon/xmalloc.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define ADDRESSES_MAX 8 /* of one name */

struct lookup {
    atomic_int holders; /* the asker and the thread: the last one frees */
    int done_fd;
    char *name;
    int status; /* of getaddrinfo */
    struct addrinfo *found;
};

static void lookup_release(struct lookup *lookup)
{
    if (atomic_fetch_sub(&lookup->holders, 1) > 1)
        return;
    if (lookup->found != NULL)
        freeaddrinfo(lookup->found);
    close(lookup->done_fd);
    free(lookup->name);
    free(lookup);
}

static void *look_up(void *argument)
{
    struct lookup *lookup = argument;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC};
    lookup->status = getaddrinfo(lookup->name, NULL, &hints, &lookup->found);
    uint64_t one = 1;
    ssize_t ignored = write(lookup->done_fd, &one, sizeof one);
    (void)ignored;
    lookup_release(lookup);
    return NULL;
}

/* New, with the thread on its way; lookup_release. */
static struct lookup *lookup_start(const char *name, struct tune_error *err)
{
    struct lookup *lookup = xcalloc(1, sizeof *lookup);
    pthread_t thread;
    pthread_attr_t attributes;
    lookup->done_fd = eventfd(0, EFD_CLOEXEC);
    lookup->name = xstrdup(name);
    atomic_init(&lookup->holders, 2);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    int status =
        lookup->done_fd < 0 ? errno : pthread_create(&thread, &attributes, look_up, lookup);
    pthread_attr_destroy(&attributes);
    if (status == 0)
        return lookup;
    tune_fail(err, TUNE_EIO, "cannot look up the fleet's server: %s", strerror(status));
    lookup_release(lookup);
    lookup_release(lookup);
    return NULL;
}

/* Adds one host to the three lists that libpq takes. */
static void add_host(
    struct pg_hosts *hosts, const char *name, const char *address, const char *port)
{
    struct pg_hosts old = *hosts;
    const char *comma = old.host != NULL ? "," : "";
    hosts->host = xasprintf("%s%s%s", old.host ? old.host : "", comma, name);
    hosts->hostaddr = xasprintf("%s%s%s", old.hostaddr ? old.hostaddr : "", comma, address);
    hosts->port = xasprintf("%s%s%s", old.port ? old.port : "", comma, port);
    pg_hosts_finish(&old);
}

static int add_addresses(struct pg_hosts *hosts, const struct lookup *lookup, const char *port)
{
    int count = 0;
    for (struct addrinfo *at = lookup->found; at != NULL && count < ADDRESSES_MAX;
         at = at->ai_next) {
        char text[NI_MAXHOST];
        if (getnameinfo(at->ai_addr, at->ai_addrlen, text, sizeof text, NULL, 0, NI_NUMERICHOST))
            continue;
        add_host(hosts, lookup->name, text, port);
        count++;
    }
    return count;
}

/* 0 when the thread is done: what it found can be read then. */
static int lookup_wait(
    struct lookup *lookup, int cancel_fd, uint64_t deadline_ns, struct tune_error *err)
{
    uint64_t count;
    if (pg_poll(lookup->done_fd, POLLIN, cancel_fd, deadline_ns, err))
        return -1;
    return read(lookup->done_fd, &count, sizeof count) == sizeof count
               ? 0
               : tune_fail_errno(err, TUNE_EIO, "cannot hear of its end");
}

/* A name that has no address is left out: another host of the list may have one. */
static int add_name(struct pg_hosts *hosts, const char *name, const char *port, int cancel_fd,
    uint64_t deadline_ns, struct tune_error *missing, struct tune_error *err)
{
    struct lookup *lookup = lookup_start(name, err);
    if (lookup == NULL)
        return -1;
    struct tune_error why = {0};
    int status = lookup_wait(lookup, cancel_fd, deadline_ns, &why);
    if (status != 0)
        tune_fail(err, why.code, "looking up the fleet's server \"%.80s\": %s", name, why.text);
    else if (lookup->status != 0)
        tune_fail(missing, TUNE_EIO, "the fleet's server \"%.80s\" is not found: %s", name,
            gai_strerror(lookup->status));
    else
        add_addresses(hosts, lookup, port);
    lookup_release(lookup);
    return status;
}

void pg_hosts_finish(struct pg_hosts *hosts)
{
    free(hosts->host);
    free(hosts->hostaddr);
    free(hosts->port);
    *hosts = (struct pg_hosts){0};
}

static const char *value_of(const PQconninfoOption *given, const char *keyword)
{
    for (; given->keyword != NULL; given++)
        if (strcmp(given->keyword, keyword) == 0)
            return given->val != NULL ? given->val : "";
    return "";
}

/* Each entry of the hosts with its port; an empty one or a folder is a local socket. */
static int add_all(struct pg_hosts *hosts, char *names, char *ports, int cancel_fd,
    uint64_t deadline_ns, struct tune_error *err)
{
    struct tune_error missing = {0};
    char *name, *port = strsep(&ports, ",");
    while ((name = strsep(&names, ",")) != NULL) {
        bool is_local = name[0] == '\0' || name[0] == '/' || name[0] == '@';
        if (is_local)
            add_host(hosts, name, "", port);
        else if (add_name(hosts, name, port, cancel_fd, deadline_ns, &missing, err))
            return -1;
        if (ports != NULL) /* one port for all, or one for each */
            port = strsep(&ports, ",");
    }
    return hosts->host != NULL ? 0 : tune_fail(err, missing.code, "%s", missing.text);
}

int pg_resolve(const PQconninfoOption *given, int cancel_fd, uint64_t deadline_ns,
    struct pg_hosts *hosts, struct tune_error *err)
{
    const char *host = value_of(given, "host"), *inherited = getenv("PGHOST");
    *hosts = (struct pg_hosts){0};
    if (host[0] == '\0' && value_of(given, "service")[0] == '\0' && inherited != NULL)
        host = inherited;
    if (host[0] == '\0' || value_of(given, "hostaddr")[0] != '\0')
        return 0;
    const char *port = value_of(given, "port"), *inherited_port = getenv("PGPORT");
    if (port[0] == '\0' && inherited_port != NULL)
        port = inherited_port;
    char *names = xstrdup(host), *ports = xstrdup(port);
    int status = add_all(hosts, names, ports, cancel_fd, deadline_ns, err);
    free(names);
    free(ports);
    if (status != 0)
        pg_hosts_finish(hosts);
    return status;
}
