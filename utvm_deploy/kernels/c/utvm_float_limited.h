// std::min(std::max(value, limits[0]), limits[1]) of C++, for NaN, too.
static inline float utvm_float_limited(float value, const float *limits) {
    value = value < limits[0] ? limits[0] : value;
    return limits[1] < value ? limits[1] : value;
}
