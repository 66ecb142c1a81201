# @NAME@ as a component of ESP-IDF; CMakeLists.txt includes this there.

idf_component_register(
    SRCS
        @SOURCE_DIR@/@NAME@.c
        @SOURCE_DIR@/@NAME@_kernels.c
        @SOURCE_DIR@/@NAME@_weights.c
    INCLUDE_DIRS @INCLUDE_DIR@)
# What it was measured with, whatever sdkconfig says of the rest.
target_compile_options(${COMPONENT_LIB} PRIVATE @OPTIMIZATION_FLAG@)
# ESP-IDF's linker scripts put these sections into internal RAM, as IRAM_ATTR and DRAM_ATTR do.
if(CONFIG_@UPPER@_KERNELS_IN_RAM)
    target_compile_definitions(${COMPONENT_LIB} PRIVATE
        "UTVM_KERNEL_SECTION=__attribute__((section(\".iram1.@NAME@\")))")
endif()
if(CONFIG_@UPPER@_WEIGHTS_IN_RAM)
    target_compile_definitions(${COMPONENT_LIB} PRIVATE
        "UTVM_WEIGHTS_SECTION=__attribute__((section(\".dram1.@NAME@\")))")
endif()
