/* SPDX-License-Identifier: Apache-2.0
 * A plugin of Slurm's that knows pyxis's options as pyxis does, and writes what it was given into each task's
 * environment instead of starting a container. As with pyxis the image's own variable, here PYTHONPATH, replaces the
 * job's unless --container-env names it. VERSION is Slurm's, as 0x160508 for 22.05.8. KNOWN is how many of the
 * options it knows, fewer than all of them for an older one. The structure is that of
 * Slurm's documented interface (spank(7)); no header of Slurm's is needed to build it.
 */
#include <stdlib.h>
#include <string.h>

typedef struct spank_handle *spank_t;
struct spank_option {
    char *name, *arginfo, *usage;
    int has_arg, value;
    int (*callback)(int value, const char *argument, int remote);
};
extern int spank_option_register(spank_t spank, struct spank_option *option);
extern int spank_setenv(spank_t spank, const char *name, const char *value, int overwrite);

const char plugin_name[] = "pyxis_mock";
const char plugin_type[] = "spank";
const unsigned int plugin_version = VERSION;
const unsigned int spank_plugin_version = 1;

enum { IMAGE, MOUNTS, WORKDIR, ENV, NO_HOME, WRITABLE, READONLY, COUNT };
#ifndef KNOWN
#define KNOWN COUNT
#endif
static const char *variables[COUNT] = {"GOT_IMAGE", "GOT_MOUNTS", "GOT_WORKDIR", "GOT_ENV", "GOT_NO_HOME",
                                        "GOT_WRITABLE", "GOT_READONLY"};
static char *given[COUNT];

static int keep(int value, const char *argument, int remote)
{
    (void) remote;
    free(given[value]);
    given[value] = strdup(argument ? argument : "yes");
    return 0;
}

static struct spank_option options[COUNT] = {
    {"container-image", "IMAGE", "image", 1, IMAGE, keep},
    {"container-mounts", "SRC:DST", "mounts", 1, MOUNTS, keep},
    {"container-workdir", "PATH", "working folder", 1, WORKDIR, keep},
    {"container-env", "NAMES", "variables", 1, ENV, keep},
    {"no-container-mount-home", NULL, "no home", 0, NO_HOME, keep},
    {"container-writable", NULL, "writable", 0, WRITABLE, keep},
    {"container-readonly", NULL, "read-only", 0, READONLY, keep},
};

int slurm_spank_init(spank_t spank, int count, char **arguments)
{
    (void) count, (void) arguments;
    for (int i = 0; i < KNOWN; i++)
        if (spank_option_register(spank, &options[i]))
            return -1;
    return 0;
}

int slurm_spank_task_init(spank_t spank, int count, char **arguments)
{
    (void) count, (void) arguments;
    for (int i = 0; i < COUNT; i++)
        if (given[i])
            spank_setenv(spank, variables[i], given[i], 1);
    if (given[IMAGE] && !(given[ENV] && strstr(given[ENV], "PYTHONPATH")))
        spank_setenv(spank, "PYTHONPATH", "/image/python", 1);
    return 0;
}
