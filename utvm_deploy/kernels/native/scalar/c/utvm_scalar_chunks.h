const uint32_t raised = RAISED;
uint32_t x, w0, w1;
CLEAR
for (int32_t units; (units = *(const uint8_t *)words++) != 0;) {
    FIRST
    while (--units != 0) {
        MULTIPLY
    }
    SPLIT
}
BACK
