/* tunectl: the command line of tunerd. The table of commands is the help and the grammar (args.h);
 * each command is one function in the file of its family. */
#include "tunectl.h"
#include "print.h"

#include "client/proto.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct command commands[] = {
    {"sweep",
        "KERNEL [--shape DIMS]... [--shapes-file FILE] [--input INPUT]... [--dtype T] "
        "[--mode cold|warm] [--strategy S] [--prior P] [--budget LIMITS]... [--seed N] [--device "
        "D] "
        "[--param NAME=VALUES]... [--deadline-ms N] [--local] [--no-cache] "
        "[--detach]",
        "measure the kernel's configurations and keep the best", run_sweep},
    {"get",
        "KERNEL --shape DIMS [--dtype T] [--arch SM] [--gpu NAME] [--mode cold|warm] [--policy P] "
        "[--session NAME] [--cubin FILE]",
        "the best known launch for a shape", run_get},
    {"explain",
        "[KERNEL] [--shape DIMS] [--config VALUES] [--against VALUES] [--dtype T] [--arch SM] "
        "[--gpu NAME] [--mode cold|warm] [--no-trace] [--cubin FILE] [--resources AMOUNTS]",
        "why a configuration is as fast as it is, or how two differ", run_explain},
    {"kernels", "", "what there is to tune", run_kernels},
    {"describe", "KERNEL", "a kernel's dimensions, parameters, constraints and default",
        run_describe},
    {"records", "[KERNEL] [--outcome WORD] [--job JOB] [--limit N]",
        "measurements in the database, failures among them", run_records},
    {"jobs", "", "sweeps that wait, run, or have ended", run_jobs},
    {"watch", "[JOB] [--plain]", "follow one job, or all of them, as they go", run_watch},
    {"cancel", "JOB", "end a job; what it measured is kept", run_cancel},
    {"simulate",
        "TABLE --strategy S --trace FILE [--budget N] [--runs N] [--seed N] [--noise] "
        "[--repeats N] [--outstanding N] [--space FILE]",
        "a search strategy on a recorded space, without daemon or GPU", run_simulate},
    {"export",
        "[--kernel K] [--arch SM] [--best] [--samples] [--anonymous] [--to FORMAT] [--shape DIMS] "
        "[--dtype T] [--gpu NAME] [--mode cold|warm] -o FILE",
        "records into a file, for other machines", run_export},
    {"import",
        "FILE... [--dry-run] [--strict] [--from FORMAT] [--kernel K] [--shape DIMS] [--dtype T] "
        "[--arch SM] [--gpu NAME] [--mode cold|warm] [--from-kernel NAME]",
        "records from files, each as a whole or not at all", run_import},
    {"refuse", "[--host NAME] [--uuid UUID] [--run RUN] [--kernel K] [--before DATE] [--dry-run]",
        "take records out of service by where they come from", run_refuse},
    {"merge", "FILE... -o FILE", "files of records into one, without daemon", run_merge},
    {"report", "[KERNEL]... [--records FILE]... [--arch SM] -o FILE",
        "what was measured, as one HTML page", run_report},
    {"convert", "FORMAT FILE [-o FOLDER] [--name NAME] [--dtype T]",
        "a problem description of other tuners (t1) becomes a kernel's folder", run_convert},
    {"devices", "[--measure]", "the GPUs that the daemon sees, and what they reach", run_devices},
    {"fleet", "", "the machines that share their records, and the link to them", run_fleet},
    {"doctor", "", "check the compiler, driver, GPUs, database and daemon", run_doctor},
    {NULL, NULL, NULL, NULL},
};

/* Legend of the options, for `tunectl COMMAND --help`. */
static const struct legend {
    const char *option, *meaning;
} legends[] = {
    {"--shape", "M=4096,N=4096,K=4096; default for sweep: the manifest's shapes"},
    {"--shapes-file", "one shape per line, or a JSON list of objects; - is standard input"},
    {"--input", "a matrix or graph, from which the shape follows: random:rows=R,per_row=K, "
                "banded:rows=R,per_row=K,width=W, power_law:rows=R,per_row=K, "
                "rmat:scale=S,degree=D, grid:side=N, or the path of a Matrix Market file (.mtx)"},
    {"--dtype", "f32, f16, bf16, ...; default: the manifest's first"},
    {"--mode", "cold (L2 flushed before each run, the default) or warm"},
    {"--strategy", "how to choose the next configuration; default: the daemon's choice"},
    {"--prior", "what the search begins with: none, static (the estimate), near (winners of near "
                "shapes), all (default)"},
    {"--budget", "evals=N, seconds=N, or both with a comma"},
    {"--seed", "of the search and of the inputs; the same seed asks in the same order"},
    {"--device", "ordinal or UUID of the GPU (see tunectl devices)"},
    {"--param", "only these values of a parameter: BM=32,64 or SWIZZLE=xor; may be repeated"},
    {"--deadline-ms", "a candidate that runs longer is killed (outcome timeout)"},
    {"--local", "measure on this machine alone, also where the daemon is part of a fleet"},
    {"--no-cache", "compile without NVRTC's own disk cache, to measure compile times"},
    {"--detach", "print the job's id and leave it running"},
    {"--arch", "sm_90, ... or cpu; default: the attached GPU's"},
    {"--gpu", "a GPU's name; its own records are preferred to others of the same arch"},
    {"--policy", "cached, nearest (default), tune (nearest, and sweep when the GPU is idle), wait"},
    {"--session", "all who ask under this name get the same answer, whatever is tuned meanwhile"},
    {"--cubin", "write the compiled kernel to this file"},
    {"--config", "BM=64,SWIZZLE=xor; what is left out, and all without it, is the best known's"},
    {"--against", "another configuration to compare with"},
    {"--no-trace", "without running the kernel on the CPU to see its accesses"},
    {"--resources",
        "in place of a kernel, what a block takes: threads=256,registers=64,shared=49152"
        " (bytes, static and dynamic); no daemon is asked"},
    {"--measure",
        "measure what each GPU reaches, the ceilings of the roofline: half a second each"},
    {"--outcome", "ok, invalid, compile_failed, over_limits, launch_failed, wrong_result, timeout, "
                  "crashed"},
    {"--plain", "lines in place of the whole screen, as in a pipe"},
    {"--job", "of this job only"},
    {"--trace", "write what was tried, in order: run_id,evaluation_index,config_index,time_ms"},
    {"--runs", "searches, each with a seed of its own made from --seed; default 1"},
    {"--noise", "an evaluation sees recorded repeats, drawn by lot, instead of their mean"},
    {"--repeats", "with --noise: it sees the median of so many; default 7, as a sweep at least"},
    {"--outstanding", "proposals under way at once, as with several workers; default 1"},
    {"--space", "the space's values and constraints; default: index.json beside the table"},
    {"--limit", "at most so many"},
    {"--kernel", "of this kernel only"},
    {"--best", "only the records that the best rest on, with their ties and the defaults"},
    {"--samples", "all records, failures among them (the default)"},
    {"--anonymous", "without the names of the machines that measured"},
    {"--dry-run", "tell what would be done, and change nothing"},
    {"--strict", "a file with a line that is refused is not imported at all"},
    {"--host", "measured on the machine of this name (field \"host\" of a record)"},
    {"--uuid", "measured on this GPU"},
    {"--run", "of this run, or of both runs of this job"},
    {"--before", "measured before this day or moment (UTC): 2026-11-30 or 2026-11-30T12:00:00Z"},
    {"--from", "a file of another tuner: kernel-tuner, t4, wisdom or clblast"},
    {"--from-kernel",
        "the kernel (or family) that is meant, as a file of several kernels calls it"},
    {"--to", "a file for another tuner: kernel-tuner or t4"},
    {"--records", "a file of records, in place of those of the daemon, which is not asked then"},
    {"--name", "what the kernel is called here; default: as the description calls it"},
    {"-o",
        "the file to write; a name that ends in .zst makes a compressed one; - is standard output"},
};

/* Where a command means something of its own by an option. */
static const struct {
    const char *command, *option, *meaning;
} own_legends[] = {
    {"import", "--kernel", "with --from: the kernel of tunerd that the file is of"},
    {"import", "--shape",
        "with --from: the file's shape; default: the problem sizes that it tells"},
    {"import", "--dtype", "with --from: of the file's records; default: the manifest's first"},
    {"import", "--arch", "with --from: sm_90, ... or cpu, where the file does not say"},
    {"import", "--gpu", "with --from: of several GPUs in the file this one; else the GPU's name"},
    {"explain", "--shape", "M=4096,N=4096,K=4096; needed with a kernel"},
    {"explain", "--arch",
        "sm_90, ... or cpu; default: the attached GPU's; needed with --resources"},
    {"explain", "--mode", "of the measured time: cold (the default) or warm"},
    {"export", "--shape", "with --to: of this shape"},
    {"export", "--dtype", "with --to: of this dtype; default: the manifest's first"},
    {"export", "--arch", "of this architecture only (sm_90, ... or cpu); default: all but cpu"},
    {"export", "--gpu", "with --to: of this GPU, where there are several"},
    {"report", "--arch",
        "of this architecture only (sm_90, ...); default: all, but cpu only when it is alone"},
    {"report", "-o", "the page to write; - is standard output"},
    {"convert", "--dtype",
        "what records are kept under; default: the type of the first vector argument"},
    {"convert", "-o", "the folder to make the kernel's own folder in; default: the current one"},
};

/* --- help ------------------------------------------------------------------------------------- */

static void print_usage(const struct command *command, FILE *file)
{
    if (command != NULL)
        fprintf(file, "usage: tunectl [--socket PATH] [--json] %s%s%s\n", command->name,
            command->pattern[0] ? " " : "", command->pattern);
    else
        fprintf(file, "usage: tunectl [--socket PATH] [--json] COMMAND ...   (tunectl --help)\n");
}

static const char *meaning_of(const struct legend *legend, const struct command *command)
{
    for (size_t i = 0; i < sizeof own_legends / sizeof own_legends[0]; i++)
        if (strcmp(own_legends[i].command, command->name) == 0 &&
            strcmp(own_legends[i].option, legend->option) == 0)
            return own_legends[i].meaning;
    return legend->meaning;
}

static void print_command_help(const struct command *command)
{
    print_usage(command, stdout);
    printf("\n%s: %s\n", command->name, command->summary);
    struct table table;
    table_init(&table, "<<");
    for (size_t i = 0; i < sizeof legends / sizeof legends[0]; i++) {
        const char *at = strstr(command->pattern, legends[i].option);
        char after = at ? at[strlen(legends[i].option)] : '\0';
        if (after != ' ' && after != ']')
            continue;
        table_add(&table, legends[i].option);
        table_add(&table, meaning_of(&legends[i], command));
    }
    if (table.count > 0)
        putchar('\n');
    table_print(&table, "  ", stdout);
    table_finish(&table);
}

static void print_help(void)
{
    printf(
        "tunectl finds, shows and hands out the best launch configurations of CUDA kernels.\n\n");
    print_usage(NULL, stdout);
    putchar('\n');
    struct table table;
    table_init(&table, "<<");
    for (const struct command *c = commands; c->name != NULL; c++) {
        table_add(&table, c->name);
        table_add(&table, c->summary);
    }
    table_print(&table, "  ", stdout);
    table_finish(&table);
    printf(
        "\n"
        "  --socket PATH  the daemon's socket; default: TUNE_SOCKET, the user's, the system's\n"
        "  --json         one JSON value on standard output, messages on standard error\n"
        "  --version      this program's version\n\n"
        "\"tunectl COMMAND --help\" tells a command's options. A daemon is started for you when\n"
        "none answers, unless --socket is given or TUNE_AUTOSTART=0.\n"
        "Exit status: 0 done, 1 the thing asked for failed, 2 usage, 3 no daemon.\n");
}

/* --- the daemon ------------------------------------------------------------------------------- */

int ctl_connect(struct tunectl *ctl, bool may_start, struct tune_error *err)
{
    struct tune_error why = {0};
    if (ctl->client != NULL || tune_connect(ctl->socket, &ctl->client, &why) == 0)
        return 0;
    const char *wish = getenv("TUNE_AUTOSTART");
    bool is_forbidden = wish != NULL && strcmp(wish, "0") == 0;
    if (why.code != TUNE_ENODAEMON || !may_start || is_forbidden || ctl->socket != NULL)
        return tune_fail(err, why.code, "%s", why.text);
    fputs("tunectl: no daemon answers; starting one\n", stderr);
    if (tune_autostart(err))
        return -1;
    return tune_connect(NULL, &ctl->client, err);
}

int ctl_ask(struct tunectl *ctl, const char *method, json_t *params, json_t **result,
    struct tune_error *err)
{
    if (ctl_connect(ctl, true, err)) {
        json_decref(params);
        return -1;
    }
    return tune_request(ctl->client, method, params, result, err);
}

int ctl_fail(const struct tunectl *ctl, const struct tune_error *err)
{
    fputs("tunectl: ", stderr);
    print_clean(stderr, err->text);
    putc('\n', stderr);
    if (ctl->is_json) {
        json_t *value = json_pack("{s:{s:s, s:o}}", "error", "code", tune_code_word(err->code),
            "message", proto_text(err->text));
        print_json(value);
        json_decref(value);
    }
    return err->code == TUNE_ENODAEMON ? CTL_NO_DAEMON : CTL_FAILED;
}

/* --- main ------------------------------------------------------------------------------------- */

static int usage_error(const struct args *args, const struct tune_error *err)
{
    fputs("tunectl: ", stderr);
    print_clean(stderr, err->text);
    putc('\n', stderr);
    print_usage(args->command, stderr);
    return CTL_USAGE;
}

/* Output that could not be written is a failure, also when the disk or the reader is gone. */
static int check_output(int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    perror("tunectl: cannot write the output");
    return status == CTL_DONE ? CTL_FAILED : status;
}

/* Where a standard descriptor is closed, the next file or socket would get its number, and what is
 * printed would go to the daemon. Read-only: that nothing can be printed is still an error. */
static void fill_standard_descriptors(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDONLY | O_NOCTTY);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

int main(int argc, char **argv)
{
    fill_standard_descriptors();
    signal(SIGPIPE, SIG_IGN);
    struct args args;
    struct tune_error err = {0};
    int status = CTL_DONE;
    struct tunectl ctl = {0};
    if (args_parse(&args, argc, argv, commands, &err)) {
        status = usage_error(&args, &err);
    } else if (args.wants_version) {
        printf("tunectl %s\n", TUNE_VERSION);
    } else if (args.wants_help && args.command != NULL) {
        print_command_help(args.command);
    } else if (args.wants_help) {
        print_help();
    } else {
        ctl.socket = args.socket;
        ctl.is_json = args.is_json;
        status = args.command->run(&ctl, &args);
    }
    tune_disconnect(ctl.client);
    args_finish(&args);
    return check_output(status);
}
