// Boards whose clocks are right after reset.

#include "port.h"

void clock_start(void)
{
}
