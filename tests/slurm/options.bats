# SPDX-License-Identifier: Apache-2.0
# options.bats - Slurm's own options of rv run: defaults of rv.conf, pyxis's,
# what plugins of the site refuse, on a private Slurm of 2 nodes x 2 GPUs
# shellcheck disable=SC2030,SC2031,SC2154,SC2016 # bats' run sets status, output, stderr

load run

# lacks ARG... - grep finds nothing; a plain "!" would not fail a test
lacks() {
    if grep "$@"; then return 1; fi
}

# with_site COMMAND... - separate, with what stands in ./site.conf as the site's
# rv.conf, which no other process sees
with_site() {
    local folder
    folder=$(grep -aom1 '/[^[:cntrl:]]*/rv/rv\.conf' "$RV")
    folder=${folder%/rv.conf}
    mkdir -p "$folder"
    separate unshare -m sh -ec 'mount --make-rprivate / 2>/dev/null || true
        mount -t tmpfs -o mode=755 none "$1"
        cp site.conf "$1/rv.conf"
        chmod 644 "$1/rv.conf"
        shift
        exec "$@"' sh "$folder" "$@"
}

# from - "option=value from" of each, of rv run --json
from() {
    jq -r '.options[] | "\(.option)=\(.value) \(.from)"' <<<"$output"
}

@test "defaults: the command line before the user's rv.conf before the site's" {
    unshare -m true 2>/dev/null || skip "no right to make a mount namespace"
    mkdir -p conf/rv
    export XDG_CONFIG_HOME=$PWD/conf
    cat >site.conf <<'X'
[defaults]
account = lab
qos = normal
partition = gpu , gpu
exclude = n1 , n1
mail_user = desk
exclusive = on
slurm = --nice=100 --comment=site
X
    printf '[defaults]\naccount = mine\nexclusive =\n' >conf/rv/rv.conf
    with_site "$RV" run --dry-run --json --qos=fast --slurm=--nice=7 --mail-type=END true
    [ "$status" = 0 ]
    valid <<<"$output"
    [ "$(from)" = "partition=gpu,gpu site
account=mine user
qos=fast command_line
exclude=n1,n1 site
mail-user=desk site
slurm=--comment=site site
slurm=--nice=7 command_line
mail-type=END command_line" ]
    words=$(jq -r '.sbatch_argv[]' <<<"$output")
    for w in --partition=gpu --account=mine --qos=fast --exclude=n1,n1 \
        --mail-user=desk --comment=site --nice=7 --mail-type=END; do
        grep -qxF -- "$w" <<<"$words"
    done
    lacks -e '--nice=100' -e '--exclusive' <<<"$words"
    with_site "$RV" run --dry-run --qos=fast --slurm=--nice=7 true
    grep -qxF 'option     --qos=fast: the command line' <<<"$output"
    grep -qxF 'option     --account=mine: your rv.conf' <<<"$output"
    grep -qxF -- "option     --comment=site: the site's rv.conf" <<<"$output"
    # and in a job
    with_site "$RV" run -f -g 1 sh -c 'echo $SLURM_JOB_NODELIST $SLURM_JOB_ID'
    [ "$status" = 0 ]
    [[ $output =~ ^n2\ ([0-9]+)$ ]]
    scontrol show job -o "${BASH_REMATCH[1]}" | grep 'Comment=site' | grep -q 'Nice=100'
    # what can be no default
    echo 'slurm = --nodes=2' >>conf/rv/rv.conf
    with_site "$RV" run true
    [ "$status" = 1 ]
    [[ $stderr == "rv: cannot run 'true': rv.conf's slurm: --slurm=--nodes=2 is rv's to say: use --nodes"* ]]
}

@test "blanks around the commas of a list do not matter" {
    mkdir -p conf/rv
    export XDG_CONFIG_HOME=$PWD/conf
    printf '[defaults]\npartition = gpu , none\n' >conf/rv/rv.conf
    separate "$RV" run --dry-run true
    [ "$status" = 5 ] # no partition is called none; gpu was found
    [[ $stderr == *none* ]]
    printf '[defaults]\npartition = gpu ,gpu\n' >conf/rv/rv.conf
    separate "$RV" run -f -p 'gpu , gpu' -x 'n1 , n1' sh -c 'echo $SLURM_JOB_NODELIST'
    [ "$status" = 0 ]
    [ "$output" = n2 ]
}

@test "--container-*: the ranks' srun gets them as pyxis wants them, the batch step none" {
    ${CC:-cc} -shared -fPIC -o "$RVT/pyxis.so" "$BATS_TEST_DIRNAME/pyxis_spank.c"
    mkdir "$RVT/pyxis"
    cp "$SANDBOX/plugstack.conf" stack
    echo "required $RVT/pyxis.so $RVT/pyxis" >>"$SANDBOX/plugstack.conf"
    submit -g 2 --nodes 2 --container-image='docker://a b:1' --container-mounts=/m:/n,/p \
        --container-name=box:exec --container-workdir=/n --container-mount-home \
        --container-env=A,B --no-container-entrypoint -- sh -c 'echo in'
    wait_job "$job" COMPLETED
    mkdir -p conf/rv
    printf '[defaults]\ncontainer_image = own.sqsh\ncontainer_mounts = /q:/q , /r\ncontainer_writable = off\n' >conf/rv/rv.conf
    first=$job
    XDG_CONFIG_HOME=$PWD/conf submit -g 1 -- true
    wait_job "$job" COMPLETED
    separate "$RV" run --container-mounts=here:/there --container-image=i -f true
    cp stack "$SANDBOX/plugstack.conf"
    ls "$RVT/pyxis"
    # steps 0 alone, each of their ranks
    [ "$(cd "$RVT/pyxis" && echo "$first".*)" = "$first.0.0 $first.0.1" ]
    for r in 0 1; do
        diff - "$RVT/pyxis/$first.0.$r" <<X
container-image=docker://a b:1
container-mounts=/m:/n,/p,$STATE:$STATE,$RV_BUILD/rv-exec:$RV_BUILD/rv-exec
container-workdir=/n
container-name=box:exec
container-mount-home=
no-container-entrypoint=
container-env=A,B
X
    done
    diff - "$RVT/pyxis/$job.0.0" <<X
container-image=own.sqsh
container-mounts=/q:/q,/r,$STATE:$STATE,$RV_BUILD/rv-exec:$RV_BUILD/rv-exec
container-readonly=
X
    [ ! -e "$RVT/pyxis/$job.0.1" ]
    # what the plugin says when it refuses is there to be read
    [ "$status" != 0 ]
    grep -q 'pyxis: --container-mounts: invalid format: here:/there' <<<"$stderr$(cat "$STATE"/logs/*batch.err)"
}

# plugin_on - the site's job_submit plugin: refuses --comment=refuse, and gives
# --comment=less one GPU a node
plugin_on() {
    local gres=gres:gpu:1
    [[ $(sinfo --version) == *\ 22.* ]] || gres=gres/gpu:1
    cat >"$SANDBOX/job_submit.lua" <<L
function slurm_job_submit (job, parts, uid)
    if job.comment == "refuse" then
        slurm.log_user ("this site wants   an account; ask the desk")
        return slurm.ERROR
    end
    if job.comment == "less" then job.tres_per_node = "$gres" end
    return slurm.SUCCESS
end
function slurm_job_modify (job, rec, parts, uid) return slurm.SUCCESS end
L
    chmod 644 "$SANDBOX/job_submit.lua"
    grep -q JobSubmitPlugins "$SANDBOX/slurm.conf" ||
        echo JobSubmitPlugins=lua >>"$SANDBOX/slurm.conf"
    scontrol reconfigure
    wait_for 30 plugin_is_on
}

plugin_is_on() {
    scontrol show config | grep -q '^JobSubmitPlugins *= lua'
}

@test "what job_submit says when it refuses is shown word for word, once" {
    plugin_on
    separate "$RV" run --slurm=--comment=refuse true
    [ "$status" = 1 ]
    [ "$(grep -c 'this site wants   an account; ask the desk$' <<<"$stderr")" = 1 ]
    [[ $(tail -n 1 <<<"$stderr") == "rv: cannot run 'true': "* ]]
    [ -z "$(find "$STATE/requests" -mindepth 1 -print -quit)" ]
    separate "$RV" run -f true
    [ "$status" = 0 ]
}

# Has each of three tasks of an array left its number?
tasks_wrote() {
    [ "$(find "$STATE/logs" -name 'tasks-*.r0.out' -exec cat {} + | sort | tr '\n' ' ')" = "0 1 2 " ]
}

@test "what was granted is compared with what was asked, before the command starts" {
    plugin_on
    separate "$RV" run -f -g 2 --single-node --slurm=--comment=less -- touch ran
    [ "$status" = 125 ]
    [ "$(grep -c 'asked for 2 GPUs a node and given 1 on n[12]' <<<"$stderr")" = 1 ]
    [ ! -e ran ]
    # who changes it while it waits
    submit -g 1 --mem 200M --slurm=--hold -- touch ran
    scontrol update job="$job" MinMemoryNode=100
    scontrol release "$job"
    wait_job "$job" FAILED
    grep -h 'asked for 200M of memory a node and given 100M on n[12]' "$STATE"/logs/*-"$job".batch.err
    [ ! -e ran ]
    # more than asked is no fault, nor is an array
    separate "$RV" run -f -g 1 --exclusive true
    [ "$status" = 0 ]
    submit -g 1 --name tasks --array=0-2 -- sh -c 'echo $SLURM_ARRAY_TASK_ID'
    wait_for 60 tasks_wrote
    lacks -r 'asked for' "$STATE"/logs/tasks-*
}
