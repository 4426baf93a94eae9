# Ends a process when its parent is gone without having ended it itself (kill -9, a crash), so that nothing lives on unseen.
# Standard input is a pipe that only the parent holds open: each line is what to end ("none", a process id, or "-" and a
# process group's id), "done" lets the guard go. At the end of input: SIGTERM, SIGKILL after SECONDS, and the temporary
# FOLDER (if any) goes.
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
