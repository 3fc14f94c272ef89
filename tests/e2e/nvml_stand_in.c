/* A stand-in for libnvidia-ml.so.1: every device is as busy as $HOME/nvml-load says, "percent at
 * work, percent of memory in use", read anew each time; each question adds a byte to
 * $HOME/nvml-looks. */
#include <stdio.h>
#include <stdlib.h>

struct nvml_utilization {
    unsigned gpu, memory;
};

struct nvml_memory {
    unsigned long long total, free, used;
};

unsigned nvmlInit_v2(void);
unsigned nvmlShutdown(void);
unsigned nvmlDeviceGetHandleByUUID(const char *uuid, void **device);
unsigned nvmlDeviceGetClockInfo(void *device, unsigned type, unsigned *mhz);
unsigned nvmlDeviceGetTemperature(void *device, unsigned sensor, unsigned *celsius);
unsigned nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons);
unsigned nvmlDeviceGetUtilizationRates(void *device, struct nvml_utilization *utilization);
unsigned nvmlDeviceGetMemoryInfo(void *device, struct nvml_memory *memory);

static FILE *open_file(const char *name, const char *mode)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", getenv("HOME"), name);
    return fopen(path, mode);
}

static int read_load(unsigned *busy, unsigned *used)
{
    FILE *file = open_file("nvml-load", "re");
    int count = file ? fscanf(file, "%u %u", busy, used) : 0;
    if (file != NULL)
        fclose(file);
    return count == 2 ? 0 : 999;
}

unsigned nvmlInit_v2(void)
{
    return 0;
}

unsigned nvmlShutdown(void)
{
    return 0;
}

unsigned nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
    static char any;
    *device = &any;
    return uuid[0] == '\0';
}

unsigned nvmlDeviceGetClockInfo(void *device, unsigned type, unsigned *mhz)
{
    (void)device, (void)type;
    *mhz = 1000;
    return 0;
}

unsigned nvmlDeviceGetTemperature(void *device, unsigned sensor, unsigned *celsius)
{
    (void)device, (void)sensor;
    *celsius = 40;
    return 0;
}

unsigned nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons)
{
    (void)device;
    *reasons = 0;
    return 0;
}

unsigned nvmlDeviceGetUtilizationRates(void *device, struct nvml_utilization *utilization)
{
    unsigned used;
    (void)device;
    FILE *looks = open_file("nvml-looks", "ae");
    if (looks != NULL) {
        fputc('.', looks);
        fclose(looks);
    }
    return (unsigned)read_load(&utilization->gpu, &used);
}

unsigned nvmlDeviceGetMemoryInfo(void *device, struct nvml_memory *memory)
{
    unsigned busy, used = 0;
    (void)device;
    int status = read_load(&busy, &used);
    *memory = (struct nvml_memory){.total = 100, .free = 100 - used, .used = used};
    return (unsigned)status;
}
