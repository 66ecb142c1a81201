# This computer's own gcc, made one for 32 bits. Zephyr asks for the folder of GCC's own limits.h by
# its oldest name. Its assembly says nothing of the stack, of which Linux's ld warns, and twister lets
# no warning pass.
set(utvm_architecture i386)
set(utvm_own_prefix "")
find_program(UTVM_OWN_GCC gcc)
execute_process(COMMAND ${UTVM_OWN_GCC} -m32 -print-libgcc-file-name
  OUTPUT_VARIABLE utvm_libgcc ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT utvm_libgcc MATCHES "/32/" AND NOT utvm_libgcc MATCHES "i[3-6]86")
  set(utvm_missing "no compiler for 32-bit x86: install the Zephyr SDK, or gcc-multilib")
endif()
set(utvm_text "#!/bin/sh
case \"$1\" in
--print-file-name=include-fixed/limits.h) exec gcc -m32 --print-file-name=include/limits.h ;;
esac
exec gcc -m32 -Wl,-z,noexecstack \"$@\"
")
@WRAPPED_TOOLS@
