/* See fake_fleet.h. */
#include "fake_fleet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fleet fake;

struct fleet_lease {
    bool is_open;
};

/* --- rows ------------------------------------------------------------------------------------- */

static void add_row(const json_t *payload, const char *config, const char *uuid, bool is_final)
{
    char target[FLEET_TARGET_BYTES], run[64], shape[64];
    const json_t *dims = json_object_get(payload, "shape");
    snprintf(target, sizeof target, "%s", json_string_value(json_object_get(payload, "target")));
    snprintf(run, sizeof run, "%s/search", json_string_value(json_object_get(payload, "job")));
    snprintf(shape, sizeof shape, "M=%d,N=%d", (int)json_integer_value(json_object_get(dims, "M")),
        (int)json_integer_value(json_object_get(dims, "N")));
    char *name = strchr(target, '|'), *sms = strrchr(target, '|');
    *name = *sms = '\0';
    struct sample sample = {
        .key =
            {
                .kernel = json_string_value(json_object_get(payload, "kernel")),
                .fingerprint = json_string_value(json_object_get(payload, "fingerprint")),
                .shape = shape,
                .dtype = json_string_value(json_object_get(payload, "dtype")),
                .arch = target,
                .mode = json_string_value(json_object_get(payload, "mode")),
            },
        .config = config,
        .gpu_uuid = uuid,
        .gpu_name = name + 1,
        .sms = (uint32_t)atoi(sms + 1),
        .run = run,
        .host = "there",
        .outcome = is_final ? OUTCOME_OK : OUTCOME_CRASHED,
        .is_final = is_final,
        .attempts = 1,
        .method = json_string_value(json_object_get(payload, "method")),
        .time_unix_ms = 1,
    };
    if (is_final) {
        sample.median_ns = fake.time_ns;
        sample.lo_ns = fake.time_ns - 1;
        sample.hi_ns = fake.time_ns + 1;
    }
    assert_int_equal(tuning_db_batch_sample(writer_batch(parts.writer), &sample), 0);
}

static void add_rows(const json_t *payload)
{
    size_t i;
    json_t *config;
    json_array_foreach (json_object_get(payload, "configs"), i, config) {
        if (fake.habit == FAKE_HALF && i % 2 == 1)
            continue;
        add_row(payload, json_string_value(config), "GPU-far", fake.habit != FAKE_CRASH);
        if (fake.habit == FAKE_TWICE)
            add_row(payload, json_string_value(config), "GPU-farther", true);
    }
}

static int on_row(const struct sample *sample, void *context)
{
    void **pair = context;
    const char *uuid = pair[0];
    *(size_t *)pair[1] += strcmp(sample->run, "j-test/search") == 0 &&
                          (uuid == NULL || strcmp(sample->gpu_uuid, uuid) == 0);
    return 0;
}

size_t count_rows(const char *uuid)
{
    size_t count = 0;
    void *pair[] = {(void *)(uintptr_t)uuid, &count};
    assert_int_equal(tuning_db_walk_samples(parts.db, NULL, on_row, pair, NULL), 0);
    return count;
}

/* --- tasks ------------------------------------------------------------------------------------ */

static void forget(struct fake_task *task)
{
    struct fake_task **at = &fake.tasks;
    while (*at != task)
        at = &(*at)->next;
    *at = task->next;
    json_decref(task->payload);
    free(task);
}

static void end(struct fake_task *task, enum fleet_task_end how)
{
    task->on_end((struct fleet_task *)task, how, task->context);
    forget(task);
}

static void on_committed(const struct tune_error *err, void *context)
{
    assert_null(err);
    end(context, fake.habit == FAKE_CRASH ? FLEET_TASK_FAILED : FLEET_TASK_DONE);
}

static void begin(struct fake_task *task)
{
    task->is_new = false;
    if (fake.habit == FAKE_REFUSE) {
        end(task, FLEET_TASK_FAILED);
    } else if (fake.habit < FAKE_REFUSE) {
        add_rows(task->payload);
        writer_after_commit(parts.writer, on_committed, task);
    }
}

static void give_back(struct fake_task *task)
{
    task->is_asked_back = false;
    if (fake.habit == FAKE_LATE) {
        json_t *payload = json_incref(task->payload);
        end(task, FLEET_TASK_TAKEN_BACK);
        add_rows(payload);
        json_decref(payload);
    } else if (fake.habit == FAKE_NOBODY) {
        end(task, FLEET_TASK_TAKEN_BACK);
    }
}

/* One after the other, since each may change the list. */
static void on_turn(uv_async_t *turn)
{
    (void)turn;
    for (struct fake_task *task = fake.tasks; task != NULL; task = task->next) {
        if (!task->is_new && !task->is_asked_back)
            continue;
        if (task->is_new)
            begin(task);
        else
            give_back(task);
        uv_async_send(&fake.turn);
        return;
    }
}

size_t fleet_helpers(const struct fleet *fleet, const char *target)
{
    assert_string_equal(target, FAKE_TARGET);
    return fleet->helpers;
}

void fleet_target_text(
    const char *arch, const char *gpu_name, unsigned sms, char *text, size_t room)
{
    snprintf(text, room, "%s|%s|%u", arch, gpu_name, sms);
}

static size_t count_out(void)
{
    size_t count = 0;
    for (struct fake_task *task = fake.tasks; task != NULL; task = task->next)
        count += json_array_size(json_object_get(task->payload, "configs"));
    return count;
}

struct fleet_task *fleet_offer(struct fleet *fleet, const char *target, json_t *payload,
    void (*on_end)(struct fleet_task *task, enum fleet_task_end end, void *context), void *context)
{
    assert_string_equal(target, json_string_value(json_object_get(payload, "target")));
    assert_string_equal(json_string_value(json_object_get(payload, "method")), "event");
    if (fleet->is_down) {
        json_decref(payload);
        return NULL;
    }
    struct fake_task *task = calloc(1, sizeof *task);
    *task = (struct fake_task){fleet->tasks, payload, on_end, context, true, false};
    fleet->tasks = task;
    fleet->offered++;
    fleet->configs += json_array_size(json_object_get(payload, "configs"));
    fleet->most_out = count_out() > fleet->most_out ? count_out() : fleet->most_out;
    uv_async_send(&fleet->turn);
    return (struct fleet_task *)task;
}

void fleet_take_back(struct fleet_task *task)
{
    ((struct fake_task *)task)->is_asked_back = true;
    uv_async_send(&fake.turn);
}

void fleet_withdraw(struct fleet_task *task)
{
    writer_forget(parts.writer, task);
    fake.withdrawn++;
    forget((struct fake_task *)task);
}

/* --- leases ----------------------------------------------------------------------------------- */

void fleet_set_helper(struct fleet *fleet, const struct fleet_helper *helper)
{
    fleet->has_helper = helper != NULL;
    if (helper != NULL)
        fleet->helper = *helper;
}

void fleet_devices_changed(struct fleet *fleet, const char *const *all_targets)
{
    fleet->devices_told = 0;
    while (all_targets[fleet->devices_told] != NULL)
        fleet->devices_told++;
}

struct fleet_lease *fake_lease(json_t *payload)
{
    struct fleet_lease *lease = calloc(1, sizeof *lease);
    lease->is_open = true;
    fake.helper.on_lease(lease, payload, fake.helper.context);
    json_decref(payload);
    return lease;
}

void fake_lose(struct fleet_lease *lease)
{
    fake.helper.on_lost(lease, fake.helper.context);
}

void fleet_lease_end(struct fleet_lease *lease, bool has_failed)
{
    assert_true(lease->is_open);
    free(lease);
    fake.leases_ended++;
    fake.leases_failed += has_failed;
}

size_t fake_free_targets(void)
{
    const char *targets[8];
    size_t count = 0;
    fake.helper.free_targets(targets, 8, fake.helper.context);
    while (targets[count] != NULL)
        assert_string_equal(targets[count++], FAKE_TARGET);
    return count;
}

/* --- life ------------------------------------------------------------------------------------- */

void fake_fleet_start(void)
{
    fake = (struct fleet){.helpers = 2, .time_ns = 50000};
    uv_async_init(parts.loop, &fake.turn, on_turn);
    parts.fleet = &fake;
}

void fake_fleet_stop(void)
{
    assert_null(fake.tasks);
    uv_close((uv_handle_t *)&fake.turn, NULL);
    run_turns(2);
}
