/* SPDX-License-Identifier: Apache-2.0
 * A fake of NVIDIA's libnvidia-ml.so.1: GPUs whose values follow a script.
 *
 * NVML_SCRIPT names a file of lines "SECOND GPU KEY VALUE": from this second after nvmlInit_v2 on,
 * this GPU (-1: each) has this value. %n in its name is SLURMD_NODENAME. Keys are gpus, driver (the
 * major version), clock, max_clock and applications_clock (MHz), reasons (bits), power and power_limit
 * (mW), temperature, errors, rows, pending, failed, links and width. "SECOND GPU FUNCTION 0" makes a
 * function answer NOT_SUPPORTED. NVML_NAME is the name of the GPUs.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, MOST = 256 };

static struct { double second; int gpu; char key[64]; double value; } entries[MOST];
static int count, initialized;
static double began;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static double at(double second, int gpu, const char *key, double usual)
{
    for (int i = 0; i < count; i++)
        if (entries[i].second <= second && (entries[i].gpu < 0 || entries[i].gpu == gpu) && !strcmp(entries[i].key, key))
            usual = entries[i].value;
    return usual;
}

static double value(void *device, const char *key, double usual)
{
    return at(now() - began, (int)(intptr_t)device - 1, key, usual);
}

static int refuses(void *device, const char *function)
{
    if (!initialized)
        return UNINITIALIZED;
    return value(device, function, -1) == 0 ? NOT_SUPPORTED : SUCCESS;
}

#define ASK(device) int refused = refuses(device, __func__); if (refused) return refused

int nvmlInit_v2(void)
{
    const char *pattern = getenv("NVML_SCRIPT"), *name = getenv("SLURMD_NODENAME");
    const char *here = pattern ? strstr(pattern, "%n") : NULL;
    char path[4096] = "";
    if (here)
        snprintf(path, sizeof path, "%.*s%s%s", (int)(here - pattern), pattern, name ? name : "", here + 2);
    else if (pattern)
        snprintf(path, sizeof path, "%s", pattern);
    FILE *script = *path ? fopen(path, "r") : NULL;
    if (!script)
        return 9; /* NVML_ERROR_DRIVER_NOT_LOADED */
    for (count = 0; count < MOST && fscanf(script, "%lf %d %63s %lf", &entries[count].second, &entries[count].gpu,
                                           entries[count].key, &entries[count].value) == 4; count++);
    fclose(script);
    began = now();
    initialized = 1;
    return SUCCESS;
}

int nvmlInitWithFlags(unsigned flags) { return flags == 0 ? nvmlInit_v2() : INVALID; }

int nvmlShutdown(void) { initialized = 0; return SUCCESS; }

int nvmlDeviceGetCount_v2(unsigned *gpus) { *gpus = (unsigned)value(NULL, "gpus", 8); return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    *device = (void *)(intptr_t)(index + 1);
    return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *text, unsigned size) { snprintf(text, size, "%d.86.15", (int)value(NULL, "driver", 570)); return SUCCESS; }

int nvmlDeviceGetName(void *device, char *text, unsigned size)
{
    ASK(device);
    const char *name = getenv("NVML_NAME");
    snprintf(text, size, "%s", name ? name : "NVIDIA H100 80GB HBM3");
    return SUCCESS;
}

int nvmlDeviceGetMaxClockInfo(void *device, int type, unsigned *mhz)
{
    ASK(device);
    *mhz = (unsigned)value(device, "max_clock", 1980);
    return type == 1 ? SUCCESS : INVALID;
}

int nvmlDeviceGetApplicationsClock(void *device, int type, unsigned *mhz)
{
    ASK(device);
    *mhz = (unsigned)value(device, "applications_clock", 1980);
    return type == 1 ? SUCCESS : INVALID;
}

int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *mw)
{
    ASK(device);
    *mw = (unsigned)value(device, "power_limit", 700000);
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(void *device, int type, unsigned *mhz)
{
    ASK(device);
    *mhz = (unsigned)value(device, "clock", 1980);
    return type == 1 ? SUCCESS : INVALID;
}

int nvmlDeviceGetCurrentClocksEventReasons(void *device, unsigned long long *bits)
{
    ASK(device);
    *bits = (unsigned long long)value(device, "reasons", 0);
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *mw) { ASK(device); *mw = (unsigned)value(device, "power", 650000); return SUCCESS; }

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *mj)
{
    ASK(device);
    double second = now() - began, sum = 0;
    for (double t = 0, end; t < second; t = end) {
        end = second;
        for (int i = 0; i < count; i++)
            if (entries[i].second > t && entries[i].second < end)
                end = entries[i].second;
        sum += at(t, (int)(intptr_t)device - 1, "power", 650000) * (end - t);
    }
    *mj = 5000000 + (unsigned long long)sum;
    return SUCCESS;
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *degrees)
{
    ASK(device);
    *degrees = (unsigned)value(device, "temperature", 61);
    return sensor == 0 ? SUCCESS : INVALID;
}

int nvmlDeviceGetTotalEccErrors(void *device, int type, int counter, unsigned long long *errors)
{
    ASK(device);
    *errors = (unsigned long long)value(device, "errors", 2);
    return type == 1 && counter == 0 ? SUCCESS : INVALID;
}

int nvmlDeviceGetRemappedRows(void *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed)
{
    ASK(device);
    *corrected = 0, *uncorrected = (unsigned)value(device, "rows", 0);
    *pending = (unsigned)value(device, "pending", 0), *failed = (unsigned)value(device, "failed", 0);
    return SUCCESS;
}

int nvmlDeviceGetVbiosVersion(void *device, char *text, unsigned size)
{
    ASK(device);
    snprintf(text, size, "96.00.89.00.01");
    return SUCCESS;
}

int nvmlDeviceGetCurrPcieLinkWidth(void *device, unsigned *width) { ASK(device); *width = (unsigned)value(device, "width", 16); return SUCCESS; }

int nvmlDeviceGetNvLinkState(void *device, unsigned link, int *up)
{
    ASK(device);
    *up = link < (unsigned)value(device, "links", 18);
    return link < 18 ? SUCCESS : INVALID;
}
