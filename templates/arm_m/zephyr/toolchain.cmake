# Which compiler: what the environment or -DZEPHYR_TOOLCHAIN_VARIANT names, else an installed Zephyr
# SDK, else the arm-none-eabi-gcc on PATH, as Linux distributions have it.
if(NOT DEFINED ZEPHYR_TOOLCHAIN_VARIANT AND NOT DEFINED ENV{ZEPHYR_TOOLCHAIN_VARIANT}
   AND NOT DEFINED ZEPHYR_SDK_INSTALL_DIR AND NOT DEFINED ENV{ZEPHYR_SDK_INSTALL_DIR})
  set(home "$ENV{HOME}")
  file(GLOB utvm_sdk "${home}/.cmake/packages/Zephyr-sdk/*" "${home}/zephyr-sdk-*"
       "${home}/.local/zephyr-sdk-*" "${home}/.local/opt/zephyr-sdk-*" /opt/zephyr-sdk-*
       /usr/local/zephyr-sdk-*)
  find_program(UTVM_ARM_GCC arm-none-eabi-gcc)
  if(NOT utvm_sdk AND UTVM_ARM_GCC)
    get_filename_component(utvm_bin "${UTVM_ARM_GCC}" DIRECTORY)
    get_filename_component(utvm_prefix "${utvm_bin}" DIRECTORY)
    # Kept, as Zephyr keeps the choice of the toolchain.
    set(GNUARMEMB_TOOLCHAIN_PATH "${utvm_prefix}" CACHE PATH "where bin/arm-none-eabi-gcc is")
    set(ZEPHYR_TOOLCHAIN_VARIANT gnuarmemb)
  elseif(NOT utvm_sdk)
    message(FATAL_ERROR "no compiler for Arm: install the Zephyr SDK, or gcc-arm-none-eabi and "
            "libnewlib-arm-none-eabi")
  endif()
endif()
