# Ends a process if its parent dies without ending it (kill -9, a crash). Standard input is a pipe that only the parent
# keeps open. Each line is what to end: "none", a process id, or "-" and a group id; "done" ends the guard. At the end
# of input it sends SIGTERM, after SECONDS SIGKILL, and removes the temporary FOLDER.
# usage: sh guard.sh SECONDS [FOLDER]
seconds=$1 folder=${2-} target=none
while read -r line; do
  [ "$line" = done ] && exit 0
  target=$line
done
if [ "$target" != none ]; then
  left=$((seconds * 10))
  [ "$left" -gt 0 ] && kill -s TERM -- "$target" 2>/dev/null
  while [ "$left" -gt 0 ] && kill -s 0 -- "$target" 2>/dev/null; do
    sleep 0.1
    left=$((left - 1))
  done
  kill -s KILL -- "$target" 2>/dev/null
fi
[ -z "$folder" ] || rm -rf -- "$folder"
