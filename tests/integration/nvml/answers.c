/* A libnvidia-ml.so.1 without a GPU: every answer is looked up, at the time of the call, in the
 * text file that NVML_ANSWERS names. So a test changes the machine by changing the file.
 *
 *   init = !9                          a number after ! is the NVML error to return
 *   gpus = 2
 *   gpu.0.uuid = GPU-11111111-...
 *   gpu.0.mig.1.uuid = MIG-...         what belongs to a MIG device of a GPU
 *   profile.0.name = MIG 1g.10gb       what belongs to a GPU instance profile
 *   type.474.name = GRID A100-1-5C     what belongs to a vGPU type
 *   gpu.0.part.19 = 7:0:1 9:1:1        GPU instances of profile 19, each ID:START:SIZE
 *   gpu.0.link.3 = 2 00000000:A5:00.0  an active NVLink, to a device of that kind
 *
 * What the file does not name is NVML_ERROR_NOT_SUPPORTED. Lists are numbers with blanks between.
 * Structures were laid out after the binding's ctypes declarations. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND = 6, TOO_SMALL = 7 };
enum { VERSION_MISMATCH = 25, MAX_GPUS = 16, MAX_MIG = 8, MAX_PARTS = 64 };

struct device { int gpu, mig; };
typedef struct device *device_t;
static struct device devices[MAX_GPUS][MAX_MIG + 1];
static int started;

/* Look a key up; its value is copied to `value`, or its error returned. */
static int answer(char value[256], const char *format, ...)
{
    char key[128], line[512], found[128];
    va_list arguments;
    const char *path = getenv("NVML_ANSWERS");
    FILE *file = path ? fopen(path, "r") : NULL;
    int result = NOT_SUPPORTED;

    va_start(arguments, format);
    vsnprintf(key, sizeof key, format, arguments);
    va_end(arguments);
    if (!file) return NOT_SUPPORTED;
    while (result == NOT_SUPPORTED && fgets(line, sizeof line, file)) {
        value[0] = 0;
        if (sscanf(line, "%127s = %255[^\n]", found, value) >= 1 && !strcmp(found, key))
            result = value[0] == '!' ? atoi(value + 1) : SUCCESS;
    }
    fclose(file);
    return result;
}

static int of_device(char value[256], device_t d, const char *what)
{
    if (!started) return UNINITIALIZED;
    if (d->mig < 0) return answer(value, "gpu.%d.%s", d->gpu, what);
    return answer(value, "gpu.%d.mig.%d.%s", d->gpu, d->mig, what);
}

static int of_number(char value[256], const char *kind, unsigned number, const char *what)
{
    return started ? answer(value, "%s.%u.%s", kind, number, what) : UNINITIALIZED;
}

static int give_text(int result, const char *value, char *to, unsigned length)
{
    if (result) return result;
    if (strlen(value) >= length) return TOO_SMALL;
    strcpy(to, value);
    return SUCCESS;
}

static int give_unsigned(int result, const char *value, unsigned *to)
{
    if (!result) *to = strtoul(value, NULL, 0);
    return result;
}

static int give_list(int result, char *value, unsigned *count, unsigned *to)
{
    unsigned numbers[64], n = 0;
    char *word;

    if (result) return result;
    for (word = strtok(value, " "); word && n < 64; word = strtok(NULL, " "))
        numbers[n++] = strtoul(word, NULL, 0);
    if (!n) { *count = 0; return SUCCESS; }
    if (!to || *count < n) { *count = n; return TOO_SMALL; }
    memcpy(to, numbers, n * sizeof *numbers);
    *count = n;
    return SUCCESS;
}

#define DEVICE_TEXT(function, what) \
    int function(device_t d, char *to, unsigned length) \
    { char v[256]; int r = of_device(v, d, what); return give_text(r, v, to, length); }
#define DEVICE_UNSIGNED(function, what) \
    int function(device_t d, unsigned *to) \
    { char v[256]; int r = of_device(v, d, what); return give_unsigned(r, v, to); }
#define DEVICE_LIST(function, what) \
    int function(device_t d, unsigned *count, unsigned *to) \
    { char v[256]; int r = of_device(v, d, what); return give_list(r, v, count, to); }
#define NUMBER_UNSIGNED(function, kind, what) \
    int function(unsigned number, unsigned *to) \
    { char v[256]; int r = of_number(v, kind, number, what); return give_unsigned(r, v, to); }
#define TYPE_TEXT(function, what) \
    int function(unsigned number, char *to, unsigned *length) \
    { char v[256]; int r = of_number(v, "type", number, what); return give_text(r, v, to, *length); }

int nvmlInitWithFlags(unsigned flags)
{
    char v[256];
    int g, m, result = answer(v, "init");

    (void)flags;
    if (result != SUCCESS && result != NOT_SUPPORTED) return result;
    for (g = 0; g < MAX_GPUS; g++)
        for (m = 0; m <= MAX_MIG; m++) devices[g][m] = (struct device){g, m - 1};
    started++;
    return SUCCESS;
}

int nvmlShutdown(void)
{
    if (!started) return UNINITIALIZED;
    started--;
    return SUCCESS;
}

const char *nvmlErrorString(int result)
{
    static char text[32];
    snprintf(text, sizeof text, "error %d", result);
    return text;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    char v[256];
    int result = started ? answer(v, "gpus") : UNINITIALIZED;
    return give_unsigned(result, v, count);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t *d)
{
    char v[256];
    int result = started ? answer(v, "gpu.%u.handle", index) : UNINITIALIZED;

    if (index >= MAX_GPUS) return INVALID_ARGUMENT;
    *d = &devices[index][0];
    return result == NOT_SUPPORTED ? SUCCESS : result;
}

DEVICE_TEXT(nvmlDeviceGetName, "name")
DEVICE_TEXT(nvmlDeviceGetUUID, "uuid")
DEVICE_TEXT(nvmlDeviceGetSerial, "serial")
DEVICE_UNSIGNED(nvmlDeviceGetNumaNodeId, "memory_node")
DEVICE_UNSIGNED(nvmlDeviceGetMaxMigDeviceCount, "max_mig")
DEVICE_UNSIGNED(nvmlDeviceGetGpuInstanceId, "gpu_instance")
DEVICE_UNSIGNED(nvmlDeviceGetComputeInstanceId, "compute_instance")
DEVICE_LIST(nvmlDeviceGetSupportedVgpus, "types")
TYPE_TEXT(nvmlVgpuTypeGetName, "name")
NUMBER_UNSIGNED(nvmlVgpuTypeGetMaxInstancesPerVm, "type", "per_guest")
NUMBER_UNSIGNED(nvmlVgpuTypeGetGpuInstanceProfileId, "type", "profile")

struct pci { char legacy[16]; unsigned domain, bus, device, product, subsystem; char id[32]; };

int nvmlDeviceGetPciInfo_v3(device_t d, struct pci *pci)
{
    char v[256];
    int result = of_device(v, d, "pci");

    memset(pci, 0, sizeof *pci);
    return give_text(result, v, pci->id, sizeof pci->id);
}

int nvmlDeviceGetCudaComputeCapability(device_t d, int *major, int *minor)
{
    char v[256];
    int result = of_device(v, d, "capability");

    if (!result) sscanf(v, "%d.%d", major, minor);
    return result;
}

int nvmlDeviceGetMemoryAffinity(device_t d, unsigned words, unsigned long *set, unsigned scope)
{
    char v[256];
    unsigned node = 0;
    int result = give_unsigned(of_device(v, d, "near_node"), v, &node);

    (void)scope;
    memset(set, 0, words * sizeof *set);
    if (!result && node / 64 < words) set[node / 64] = 1ul << node % 64;
    return result;
}

int nvmlDeviceGetMigMode(device_t d, unsigned *current, unsigned *pending)
{
    char v[256];
    int result = of_device(v, d, "mig_mode");

    if (!result) sscanf(v, "%u %u", current, pending);
    return result;
}

int nvmlDeviceGetMigDeviceHandleByIndex(device_t d, unsigned index, device_t *mig)
{
    char v[256];
    int result;

    if (!started) return UNINITIALIZED;
    if (index >= MAX_MIG) return INVALID_ARGUMENT;
    result = answer(v, "gpu.%d.mig.%u.uuid", d->gpu, index);
    *mig = &devices[d->gpu][index + 1];
    return result == NOT_SUPPORTED ? NOT_FOUND : result;
}

struct attributes { unsigned engines[6], gpu_slices, compute_slices; unsigned long long memory; };

int nvmlDeviceGetAttributes_v2(device_t d, struct attributes *to)
{
    char v[256];
    int result = of_device(v, d, "attributes");

    memset(to, 0, sizeof *to);
    if (!result) sscanf(v, "%u %u %llu", &to->gpu_slices, &to->compute_slices, &to->memory);
    return result;
}

struct profile {
    unsigned version, id, p2p, slices, instances, engines[6];
    unsigned long long memory;
    char name[96];
};

int nvmlDeviceGetGpuInstanceProfileInfoV(device_t d, unsigned number, struct profile *to)
{
    char v[256];
    int result;

    (void)d;
    result = of_number(v, "profile", number, "shape");
    if (result) return result;
    sscanf(v, "%u %u %u %llu", &to->id, &to->slices, &to->instances, &to->memory);
    result = of_number(v, "profile", number, "name");
    return give_text(result, v, to->name, sizeof to->name);
}

int nvmlVgpuTypeGetFramebufferSize(unsigned number, unsigned long long *size)
{
    char v[256];
    int result = of_number(v, "type", number, "framebuffer_mib");

    if (!result) *size = strtoull(v, NULL, 0) << 20;
    return result;
}

int nvmlVgpuTypeGetMaxInstances(device_t d, unsigned number, unsigned *to)
{
    char v[256];

    (void)d;
    return give_unsigned(of_number(v, "type", number, "max"), v, to);
}

struct version1_two { unsigned version, a, b; };
enum { VERSION_1 = 1u << 24 };

int nvmlDeviceGetVgpuHeterogeneousMode(device_t d, struct version1_two *mode)
{
    char v[256];

    if (mode->version != (VERSION_1 | 8)) return VERSION_MISMATCH;
    return give_unsigned(of_device(v, d, "mixed"), v, &mode->a);
}

int nvmlVgpuTypeGetMaxInstancesPerGpuInstance(struct version1_two *most)
{
    char v[256];

    if (most->version != (VERSION_1 | sizeof *most)) return VERSION_MISMATCH;
    return give_unsigned(of_number(v, "type", most->a, "per_part"), v, &most->b);
}

struct placements { unsigned version, size, count, *ids; };

/* `placements` of a type: the size, then where each may begin. */
int nvmlDeviceGetVgpuTypeSupportedPlacements(device_t d, unsigned number, struct placements *to)
{
    char v[256], *word;
    int result = of_number(v, "type", number, "placements");

    (void)d;
    if (to->version != (VERSION_1 | sizeof *to)) return VERSION_MISMATCH;
    if (result) return result;
    to->size = strtoul(strtok(v, " "), NULL, 0);
    for (to->count = 0; (word = strtok(NULL, " ")); to->count++)
        to->ids[to->count] = strtoul(word, NULL, 0);
    return SUCCESS;
}

struct part { device_t device; unsigned id, profile, start, size; };
static struct part parts[MAX_PARTS];

int nvmlDeviceGetGpuInstances(device_t d, unsigned profile, struct part **to, unsigned *count)
{
    char v[256], what[32], *word;
    unsigned n = 0, next;
    int result;

    if (!started) return UNINITIALIZED;
    result = answer(v, "gpu.%d.parts", d->gpu);
    if (result) return result;
    snprintf(what, sizeof what, "part.%u", profile);
    result = of_device(v, d, what);
    if (result == NOT_SUPPORTED) { *count = 0; return SUCCESS; }
    if (result) return result;
    for (word = strtok(v, " "); word; word = strtok(NULL, " "), n++) {
        if (n >= *count) return TOO_SMALL;
        for (next = 0; next < MAX_PARTS - 1 && parts[next].device; next++)
            if (parts[next].device == d && parts[next].id == (unsigned)atoi(word)) break;
        parts[next].device = d;
        parts[next].profile = profile;
        sscanf(word, "%u:%u:%u", &parts[next].id, &parts[next].start, &parts[next].size);
        to[n] = &parts[next];
    }
    *count = n;
    return SUCCESS;
}

int nvmlGpuInstanceGetInfo(struct part *part, struct part *to)
{
    if (part < parts || part >= parts + MAX_PARTS) return INVALID_ARGUMENT;
    *to = *part;
    return SUCCESS;
}

int nvmlDeviceGetGpuInstanceRemainingCapacity(device_t d, unsigned profile, unsigned *to)
{
    char v[256], what[32];

    snprintf(what, sizeof what, "remaining.%u", profile);
    return give_unsigned(of_device(v, d, what), v, to);
}

/* A link without an answer is inactive; `links` says how many there are. */
static int link_of(device_t d, unsigned link, unsigned *kind, char id[32])
{
    char v[256], what[32];
    unsigned links = 0;
    int result = give_unsigned(of_device(v, d, "links"), v, &links);

    if (result) return result;
    if (link >= links) return INVALID_ARGUMENT;
    snprintf(what, sizeof what, "link.%u", link);
    result = of_device(v, d, what);
    id[0] = 0;
    if (!result) sscanf(v, "%u %31s", kind, id);
    return result == NOT_SUPPORTED ? SUCCESS : result;
}

int nvmlDeviceGetNvLinkState(device_t d, unsigned link, unsigned *active)
{
    char id[32];
    unsigned kind;
    int result = link_of(d, link, &kind, id);

    if (!result) *active = id[0] != 0;
    return result;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(device_t d, unsigned link, unsigned *kind)
{
    char id[32];

    return link_of(d, link, kind, id);
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(device_t d, unsigned link, struct pci *pci)
{
    char id[32];
    unsigned kind;
    int result = link_of(d, link, &kind, id);

    memset(pci, 0, sizeof *pci);
    return give_text(result, id, pci->id, sizeof pci->id);
}

/* Events come once each, in the order of `events = GPU:XID GPU:XID ...`. */
struct event { device_t device; unsigned long long type, data; unsigned gi, ci; };
enum { XID_CRITICAL = 8, TIMEOUT = 10 };
static int event_set, watched[MAX_GPUS];
static unsigned told;

DEVICE_UNSIGNED(nvmlDeviceGetSupportedTypes, "event_types")

int nvmlDeviceGetSupportedEventTypes(device_t d, unsigned long long *types)
{
    unsigned found = 0;
    int result = nvmlDeviceGetSupportedTypes(d, &found);

    *types = found;
    return result;
}

int nvmlEventSetCreate(void **set)
{
    if (!started) return UNINITIALIZED;
    *set = &event_set;
    return SUCCESS;
}

int nvmlDeviceRegisterEvents(device_t d, unsigned long long types, void *set)
{
    if (set != &event_set || !(types & XID_CRITICAL)) return INVALID_ARGUMENT;
    watched[d->gpu] = 1;
    return SUCCESS;
}

int nvmlEventSetWait_v2(void *set, struct event *event, unsigned milliseconds)
{
    char v[256], *word;
    unsigned gpu, xid, number = 0;
    int result = started ? answer(v, "events") : UNINITIALIZED;

    (void)milliseconds;
    if (set != &event_set) return INVALID_ARGUMENT;
    if (result) return result == NOT_SUPPORTED ? TIMEOUT : result;
    for (word = strtok(v, " "); word; word = strtok(NULL, " "), number++) {
        if (number < told || sscanf(word, "%u:%u", &gpu, &xid) != 2) continue;
        told++;
        if (!watched[gpu]) continue;
        *event = (struct event){&devices[gpu][0], XID_CRITICAL, xid, ~0u, ~0u};
        return SUCCESS;
    }
    return TIMEOUT;
}
