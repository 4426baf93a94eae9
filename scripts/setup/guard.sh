# Ends a process when its parent is gone without having ended it itself (kill -9, a crash), so that nothing lives on unseen.
# Standard input is a pipe that only the parent holds open: each line is the process id to watch ("-": none for now),
# "done" lets the guard go. At the end of input: SIGTERM, SIGKILL after SECONDS, and the temporary FOLDER (if any) goes.
# usage: sh guard.sh SECONDS [FOLDER]
seconds=$1 folder=${2-} pid=-
while read -r line; do
  [ "$line" = done ] && exit 0
  pid=$line
done
if [ "$pid" != - ] && kill -TERM "$pid" 2>/dev/null; then
  left=$((seconds * 10))
  while [ "$left" -gt 0 ] && kill -0 "$pid" 2>/dev/null; do
    sleep 0.1
    left=$((left - 1))
  done
  kill -KILL "$pid" 2>/dev/null
fi
[ -z "$folder" ] || rm -rf -- "$folder"
