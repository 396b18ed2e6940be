# bash completion for gpupipe-cli
_gpupipe_cli()
{
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words=

    case $before in
        --priority) words='urgent normal bulk' ;;
        --require) words='any gpu cpu' ;;
        --tail) words='error zero short' ;;
        --format)
            words='raw npy hex text'
            [[ " ${COMP_WORDS[*]} " == *' bench '* ]] && words='text json hgrm' ;;
        --distribution) words='constant poisson' ;;
        bench) words='throughput latency chunks streams' ;;
        --backend) words='auto cuda cpu' ;;
        --device)
            words=$(gpupipe-cli device list --json 2>/dev/null |
                    grep -o '"device": "[a-z0-9]*"' | cut -d'"' -f4) ;;
        run|show)
            words=$(gpupipe-cli op list --json 2>/dev/null |
                    grep -o '{"name": "[a-z0-9_]*", "doc"' | cut -d'"' -f4) ;;
        call)
            words='const.drop const.put device.list events.subscribe hello job.cancel job.close'
            words+=' job.list job.open job.push op.list ping ring.close ring.open run stats' ;;
        device) words='list' ;;
        op) words='list show' ;;
        job) words='list cancel' ;;
        -i|-k|-o|--socket|--svg)
            COMPREPLY=($(compgen -f -- "$word"))
            return ;;
        *)
            if [[ $word == -* ]]; then
                words='--socket --json -q --help'
                if [[ " ${COMP_WORDS[*]} " == *' run '* ]]; then
                    words+=' -p -i -k -o -f --priority --deadline --admit --after --require --device'
                    words+=' --chunk --tail --format --timing --inline --no-wait --private'
                elif [[ " ${COMP_WORDS[*]} " == *' bench '* ]]; then
                    words+=' --rate --concurrency --distribution --duration --warmup --size --format'
                    words+=' --svg -f -p --inline --priority --require --device'
                elif [[ " ${COMP_WORDS[*]} " == *' exec '* ]]; then
                    words+=' --backend --devices'
                elif [[ " ${COMP_WORDS[*]} " == *' call '* ]]; then
                    words+=' -o -f'
                fi
            elif [[ $before == @(throughput|latency|chunks|streams) ]]; then
                words='copy saxpy iterate'
            else
                words='run exec op job device call bench status ping version'
            fi ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o filenames -F _gpupipe_cli gpupipe-cli
