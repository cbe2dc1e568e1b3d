# SPDX-License-Identifier: Apache-2.0
# rv.fish - fish completion of rv: commands, options, names of jobs
function __rv_command
    for word in (commandline -opc)[2..-1]
        switch $word
            case '-*'
                continue
        end
        echo $word
        return 0
    end
    return 1
end
function __rv_is
    set -l command (__rv_command)
    test "$command" = $argv[1]
end
function __rv_none
    not __rv_command >/dev/null
end
function __rv_jobs
    rv ps $argv 2>/dev/null | awk 'NR > 1 { print $1; print $2 }'
end

complete -c rv -n 'not __rv_is run; and not __rv_is up' -f
complete -c rv -n __rv_none -a run -d 'run a command on GPUs'
complete -c rv -n __rv_none -a ps -d 'list your jobs'
complete -c rv -n __rv_none -a logs -d 'show what a job has written'
complete -c rv -n __rv_none -a stop -d 'end jobs'
complete -c rv -n __rv_none -a status -d 'which GPUs are free'
complete -c rv -n __rv_none -a cost -d 'GPU hours of your jobs'
complete -c rv -n '__rv_is cost' -l since -x -d 'the last'
complete -c rv -n __rv_none -a up -d 'a shell on GPUs'
complete -c rv -n __rv_none -a attach -d 'a shell beside a running job'
complete -c rv -n __rv_none -a forward -d 'a local port that leads into a job'
complete -c rv -n __rv_none -a gpu -d 'how busy the GPUs of a job are'
complete -c rv -n '__rv_is attach; or __rv_is forward; or __rv_is gpu' -a '(__rv_jobs)'
complete -c rv -n '__rv_is attach; or __rv_is forward' -l node -x -d node
complete -c rv -n '__rv_is gpu' -s w -l watch -d 'every two seconds'
complete -c rv -n __rv_none -a env -d 'variables that your jobs alone see'
complete -c rv -n __rv_none -a doctor -d 'check this site'
complete -c rv -n __rv_none -a sandbox -d 'a private Slurm on this machine'
complete -c rv -n __rv_none -a completion -d 'what a shell needs to complete this'
complete -c rv -n '__rv_is completion' -a 'bash zsh fish'
complete -c rv -n __rv_none -a help -d 'tell what a command does'
complete -c rv -n __rv_none -a version -d version
complete -c rv -n '__rv_is help' -a 'run up ps logs stop status cost attach forward gpu env doctor sandbox completion help version'
complete -c rv -n __rv_none -l sandbox -d 'use the sandbox'
complete -c rv -n __rv_none -l version -d version
complete -c rv -l help -d help
complete -c rv -l json -d 'one JSON object on stdout'
complete -c rv -n '__rv_is run; or __rv_is up' -s g -l gpus -x -d 'GPUs of the job'
complete -c rv -n '__rv_is run; or __rv_is up' -l mig -d 'MIG slices, one a task'
complete -c rv -n '__rv_is run' -l snapshot -d 'run in a copy of what git tracks'
complete -c rv -n '__rv_is run' -l output -r -d 'bring back, with --snapshot'
complete -c rv -n '__rv_is run' -l checkpoint -d 'signal before the limit, and go on'
complete -c rv -n '__rv_is run' -l fanout -x -d 'jobs that may wait at once'
complete -c rv -n '__rv_is run' -l no-fanout -d 'one job'
complete -c rv -n '__rv_is run; or __rv_is up' -s t -l type -x -d 'GPU type' -a '(sinfo -h -o %G 2>/dev/null | string split , | string replace -rf "^gpu:([^:]*):.*" "\$1")'
complete -c rv -n '__rv_is run; or __rv_is up' -l time -x -d 'time limit'
complete -c rv -n '__rv_is run; or __rv_is up' -l time-min -x -d 'a limit that will do'
complete -c rv -n '__rv_is run; or __rv_is up' -l name -x -d 'name of the job'
complete -c rv -n '__rv_is run; or __rv_is up' -l mem -x -d 'memory a node'
complete -c rv -n '__rv_is run; or __rv_is up' -l vram -x -d 'memory of a GPU, at least'
complete -c rv -n '__rv_is run; or __rv_is up' -l nodes -x -d nodes
complete -c rv -n '__rv_is run; or __rv_is up' -l single-node -d 'one node'
complete -c rv -n '__rv_is run; or __rv_is up' -s p -l partition -x -d partition -a '(sinfo -h -o %R 2>/dev/null)'
complete -c rv -n '__rv_is run; or __rv_is up' -s A -l account -x -d account
complete -c rv -n '__rv_is run; or __rv_is up' -s q -l qos -x -d qos
complete -c rv -n '__rv_is run; or __rv_is up' -s x -l exclude -x -d 'not these nodes'
complete -c rv -n '__rv_is run; or __rv_is up' -s w -l nodelist -x -d 'these nodes'
complete -c rv -n '__rv_is run; or __rv_is up' -s C -l constraint -x -d features
complete -c rv -n '__rv_is run; or __rv_is up' -l reservation -x -d reservation
complete -c rv -n '__rv_is run; or __rv_is up' -l dependency -x -d 'jobs before'
complete -c rv -n '__rv_is run' -l array -x -d 'tasks of an array'
complete -c rv -n '__rv_is run; or __rv_is up' -l mail-type -x -a 'BEGIN END FAIL ALL' -d 'mail when'
complete -c rv -n '__rv_is run; or __rv_is up' -l mail-user -x -d 'mail to'
complete -c rv -n '__rv_is run; or __rv_is up' -l exclusive -d 'whole nodes'
complete -c rv -n '__rv_is run; or __rv_is up' -l container-image -x -d 'image of pyxis'
complete -c rv -n '__rv_is run; or __rv_is up' -l container-mounts -x -d 'mounts of pyxis'
complete -c rv -n '__rv_is run; or __rv_is up' -l slurm -x -d 'option of sbatch'
complete -c rv -n '__rv_is run' -s f -l follow -d 'show the output until the end'
complete -c rv -n '__rv_is run' -s l -l label -d 'begin lines with the rank'
complete -c rv -n '__rv_is run; or __rv_is up' -l dry-run -d 'print the plan, submit nothing'
complete -c rv -n '__rv_is run; or __rv_is up' -a '(__fish_complete_subcommand --fcs-skip=2)'
complete -c rv -n '__rv_is ps; or __rv_is stop' -s a -l all -d 'all jobs'
complete -c rv -n '__rv_is logs' -l node -x -d 'the ranks of a node'
complete -c rv -n '__rv_is logs' -l raw -d 'bytes as they are'
complete -c rv -n '__rv_is logs' -s f -l follow -d 'go on until the job ends'
complete -c rv -n '__rv_is logs' -l out -d 'standard output alone'
complete -c rv -n '__rv_is logs' -l err -d 'standard error alone'
complete -c rv -n '__rv_is logs' -l rank -x -d 'one rank'
complete -c rv -n '__rv_is logs' -l tail -x -d 'last lines'
complete -c rv -n '__rv_is logs' -l no-label -d 'no rank before lines'
complete -c rv -n '__rv_is logs' -a '(__rv_jobs -a)'
complete -c rv -n '__rv_is stop' -a '(__rv_jobs)'
complete -c rv -n '__rv_is env; and not __fish_seen_subcommand_from set list rm import' -a 'set list rm import'
complete -c rv -n '__rv_is env; and __fish_seen_subcommand_from set rm' -a '(rv env list 2>/dev/null | string replace -r "=.*" "")'
complete -c rv -n '__rv_is env; and __fish_seen_subcommand_from import' -F
complete -c rv -n '__rv_is env' -l raw -d 'keep the last newline'
complete -c rv -n '__rv_is doctor' -l nodes -d 'the idle nodes too'
complete -c rv -n '__rv_is sandbox' -a 'up down status env'
complete -c rv -n '__rv_is sandbox' -l nodes -x -d 'virtual nodes'
complete -c rv -n '__rv_is sandbox' -l gpus -x -d 'GPUs of all nodes'
complete -c rv -n '__rv_is sandbox' -l mig -x -d 'MIG slices of all nodes'
complete -c rv -n '__rv_is sandbox' -l cpus -x -d 'CPUs a node'
complete -c rv -n '__rv_is sandbox' -l type -x -d 'GPU type'
complete -c rv -n '__rv_is sandbox' -l made-up -d 'no real GPUs'
complete -c rv -n '__rv_is sandbox' -l no-plugin -d 'without the plugin'
complete -c rv -n '__rv_is sandbox' -l cgroup -d 'confine jobs by control groups'
complete -c rv -n '__rv_is sandbox' -l accounting -d 'with slurmdbd and its database'
complete -c rv -n '__rv_is sandbox' -l dir -x -a '(__fish_complete_directories)' -d 'its folder'
