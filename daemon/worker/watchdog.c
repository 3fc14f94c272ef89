#include "watchdog.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The main thread may hang with any lock held, malloc's too: no allocation from here on. */
static void expire(struct watchdog *watchdog)
{
    char fields[512], candidate[40] = "";
    if (watchdog->candidate >= 0)
        snprintf(candidate, sizeof(candidate), ",\"candidate\":%d", watchdog->candidate);
    snprintf(fields, sizeof(fields),
        "\"ok\":false,\"outcome\":\"timeout\",\"error\":\"%s did not end within %ld ms\","
        "\"code\":0,\"blame\":\"%s\",\"retry\":%s,\"sticky\":true%s",
        watchdog->what, watchdog->limit_ms,
        watchdog->blame == BLAME_DEVICE ? "device" : "candidate",
        watchdog->blame == BLAME_DEVICE ? "true" : "false", candidate);
    channel_answer_text(watchdog->channel, fields);
    kill(getpid(), SIGKILL);
}

static void *watch(void *context)
{
    struct watchdog *watchdog = context;
    pthread_mutex_lock(&watchdog->lock);
    while (!watchdog->is_ending) {
        if (!watchdog->is_armed) {
            pthread_cond_wait(&watchdog->changed, &watchdog->lock);
            continue;
        }
        struct timespec now, deadline = watchdog->deadline;
        pthread_cond_timedwait(&watchdog->changed, &watchdog->lock, &deadline);
        clock_gettime(CLOCK_MONOTONIC, &now);
        deadline = watchdog->deadline; /* another step may have begun meanwhile */
        bool is_past = now.tv_sec > deadline.tv_sec ||
                       (now.tv_sec == deadline.tv_sec && now.tv_nsec >= deadline.tv_nsec);
        if (watchdog->is_armed && is_past)
            expire(watchdog);
    }
    pthread_mutex_unlock(&watchdog->lock);
    return NULL;
}

int watchdog_init(struct watchdog *watchdog, struct channel *channel, struct tune_error *err)
{
    pthread_condattr_t attributes;
    *watchdog = (struct watchdog){.channel = channel, .candidate = -1};
    pthread_mutex_init(&watchdog->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&watchdog->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    if (pthread_create(&watchdog->thread, NULL, watch, watchdog) != 0)
        return tune_fail(err, TUNE_EIO, "the watchdog's thread does not start");
    return 0;
}

void watchdog_finish(struct watchdog *watchdog)
{
    pthread_mutex_lock(&watchdog->lock);
    watchdog->is_ending = true;
    pthread_cond_signal(&watchdog->changed);
    pthread_mutex_unlock(&watchdog->lock);
    pthread_join(watchdog->thread, NULL);
    pthread_cond_destroy(&watchdog->changed);
    pthread_mutex_destroy(&watchdog->lock);
}

void watchdog_arm(struct watchdog *watchdog, double limit_ms, const char *what)
{
    pthread_mutex_lock(&watchdog->lock);
    clock_gettime(CLOCK_MONOTONIC, &watchdog->deadline);
    watchdog->limit_ms = (long)limit_ms;
    watchdog->deadline.tv_sec += watchdog->limit_ms / 1000;
    watchdog->deadline.tv_nsec += watchdog->limit_ms % 1000 * 1000000;
    if (watchdog->deadline.tv_nsec >= 1000000000) {
        watchdog->deadline.tv_sec++;
        watchdog->deadline.tv_nsec -= 1000000000;
    }
    snprintf(watchdog->what, sizeof(watchdog->what), "%s", what);
    for (char *at = watchdog->what; *at; at++)
        if (*at < ' ' || *at >= 127 || *at == '"' || *at == '\\')
            *at = '?'; /* the cut may have split a character, so nothing but ASCII */
    watchdog->is_armed = true;
    pthread_cond_signal(&watchdog->changed);
    pthread_mutex_unlock(&watchdog->lock);
}

void watchdog_disarm(struct watchdog *watchdog)
{
    pthread_mutex_lock(&watchdog->lock);
    watchdog->is_armed = false;
    pthread_mutex_unlock(&watchdog->lock);
}
