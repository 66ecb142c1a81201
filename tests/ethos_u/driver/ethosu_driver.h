// The functions of Arm's ethos-u-core-driver that generated code calls, for a double of it.

#ifndef ETHOSU_DRIVER_H
#define ETHOSU_DRIVER_H

#include <stddef.h>
#include <stdint.h>

struct ethosu_driver;

struct ethosu_driver *ethosu_reserve_driver(void);
void ethosu_release_driver(struct ethosu_driver *driver);
int ethosu_invoke_v3(struct ethosu_driver *driver, const void *payload, const int bytes,
                     uint64_t *const bases, const size_t *sizes, const int count, void *user);

#endif
