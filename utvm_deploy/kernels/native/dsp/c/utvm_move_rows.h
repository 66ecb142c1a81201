const int32_t plane = plane_bytes / 2, behind = from_bytes / 2;
for (int32_t c = 0; c < channels; c++, planes += plane) {
    for (int32_t i = 0; i < 2 * words; i++) {
        planes[i] = planes[behind + i];
    }
}
