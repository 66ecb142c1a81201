# Stands before the compiler: takes the object that is to be made from FOLDER if it is there, else
# compiles. CMake calls it as:  sh take_object.sh FOLDER COMPILER ARGUMENT...
folder=$1
shift
previous=
for argument in "$@"; do
    if [ "$previous" = -o ] && [ -f "$folder/$argument" ]; then
        # It may be cleared away at this moment.
        cp "$folder/$argument" "$argument" 2>/dev/null && exit 0
    fi
    previous=$argument
done
exec "$@"
