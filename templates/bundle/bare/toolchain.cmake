# The GNU toolchain for the @CORE@ that this bundle was made for:
#     cmake -S . -B ../build -DCMAKE_TOOLCHAIN_FILE=@SELFTEST_DIR@/@BARE_FOLDER@/toolchain.cmake

@SYSTEM@
set(CMAKE_C_COMPILER @COMPILER@)
# Not CMAKE_C_FLAGS_INIT, which a CMAKE_C_FLAGS of the user's would replace.
add_compile_options(@COMPILER_FLAGS@ -ffunction-sections)
add_link_options(@COMPILER_FLAGS@)
# A bare program cannot link before it has start-up code.
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
