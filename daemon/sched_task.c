/* Tasks and their queues. */
#include "daemon/sched_internal.h"

#include "daemon/xmalloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void task_queue_init(struct task_queue *queue)
{
    *queue = (struct task_queue){.end = &queue->first};
}

void task_queue_push(struct task_queue *queue, struct task *task)
{
    task->next = NULL;
    *queue->end = task;
    queue->end = &task->next;
    queue->count++;
}

void task_queue_push_front(struct task_queue *queue, struct task *task)
{
    task->next = queue->first;
    queue->first = task;
    if (task->next == NULL)
        queue->end = &task->next;
    queue->count++;
}

struct task *task_queue_pop(struct task_queue *queue)
{
    struct task *task = queue->first;
    if (task == NULL)
        return NULL;
    queue->first = task->next;
    if (queue->first == NULL)
        queue->end = &queue->first;
    queue->count--;
    return task;
}

void task_destroy(struct task *task)
{
    json_decref(task->request);
    json_decref(task->setup);
    free(task);
}

void task_finish(struct task *task, enum task_end end, const json_t *answer, const char *why)
{
    struct task_result result = {end, answer, why};
    if (task->on_done != NULL)
        task->on_done(&result, task->context);
    task_destroy(task);
}

void task_queue_drop(struct task_queue *queue, const void *context)
{
    struct task_queue kept;
    task_queue_init(&kept);
    struct task *task;
    while ((task = task_queue_pop(queue)) != NULL) {
        if (task->context == context)
            task_destroy(task);
        else
            task_queue_push(&kept, task);
    }
    while ((task = task_queue_pop(&kept)) != NULL)
        task_queue_push(queue, task);
}

/* Fails as many tasks as wait now. They stay in the queue until their turn, since a callback may
 * cancel others, and may submit again. */
void task_queue_fail(struct task_queue *queue, const char *why)
{
    for (size_t count = queue->count; count > 0 && queue->first != NULL; count--)
        task_finish(task_queue_pop(queue), TASK_UNAVAILABLE, NULL, why);
}

/* A sentence from outside, cut between characters: it goes into JSON. */
void sched_set_text(char *to, size_t room, const char *text)
{
    struct tune_error cut = {0};
    tune_fail(&cut, TUNE_EINTERNAL, "%s", text);
    snprintf(to, room, "%s", cut.text);
}
