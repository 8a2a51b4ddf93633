/* A stand-in for libcuda.so.1 of which a rank asks which GPU it uses.
 * Before standin_start() CUDA is not in use.  */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOT_INITIALIZED 3
#define INVALID_CONTEXT 201
#define DEVICES 4

static int started, current = -1, used[DEVICES], is_mig, init_calls;

void standin_start(int device, int has_context, int mig) {
    started = 1;
    current = has_context ? device : -1;
    used[device] = 1;
    is_mig = mig;
}

int standin_init_calls(void) { return init_calls; }

int cuInit(unsigned flags) {
    (void)flags;
    init_calls++;
    return 0;
}

int cuCtxGetDevice(int *device) {
    *device = current;
    return !started ? NOT_INITIALIZED : current < 0 ? INVALID_CONTEXT : 0;
}

int cuDeviceGetCount(int *count) {
    *count = DEVICES;
    return started ? 0 : NOT_INITIALIZED;
}

int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    *flags = 0;
    *active = used[device];
    return 0;
}

static int uuid(unsigned char *bytes, int device, unsigned char first) {
    memset(bytes, 0, 16);
    bytes[0] = first;
    bytes[15] = (unsigned char)device;
    return 0;
}

#ifndef STANDIN_NEW /* a driver may have dropped the first version of the call */
int cuDeviceGetUuid(unsigned char *bytes, int device) { return uuid(bytes, device, 0); }
#endif
int cuDeviceGetUuid_v2(unsigned char *bytes, int device) { return uuid(bytes, device, is_mig ? 0x4d : 0); }

int cuDeviceGetPCIBusId(char *text, int length, int device) {
    snprintf(text, (size_t)length, "0000:%02X:00.0", 0x3A + device);
    return 0;
}
