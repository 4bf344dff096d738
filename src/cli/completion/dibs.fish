# Completion of dibs(1) for fish: commands, options, columns, and the names of locks that are held.
#
# Commands and options are read from the help texts, so that they are always those of the installed command.

function __dibs_command
    set -l words (commandline -opc)
    test (count $words) -ge 2; and echo $words[2]
end

function __dibs_commands
    dibs --help 2>/dev/null | string replace -rf '^  ([a-z]+) +(.*)$' '$1\t$2'
end

# Lines such as "  -s, --sort COLUMN   sorts by", as "--sort", a tab, and "sorts by".
function __dibs_options
    for line in (dibs (__dibs_command) --help 2>/dev/null | string match -r '^ +-.*')
        set -l text (string replace -r '^ +(-[^ ,]+(, )?)+( [A-Z][A-Z.]*)? *' '' -- $line)
        for option in (string match -ar -- '(?<=^  |^      |, )-[^ ,]+' $line)
            printf '%s\t%s\n' $option $text
        end
    end
end

# The names of the locks that are held, in the store of this command line.
function __dibs_names
    set -l words (commandline -opc)
    set -l store
    for i in (seq 3 (count $words))
        if string match -qr -- '^--(url|url-file|prefix|tls-[a-z]+)=' $words[$i]
            set store $store $words[$i]
        else if string match -qr -- '^--(url|url-file|prefix|tls-[a-z]+)$' $words[$i]; and test (count $words) -gt $i
            set store $store $words[$i] $words[(math $i + 1)]
        end
    end
    dibs list --null $store 2>/dev/null | string split0
end

function __dibs_wants
    contains -- (__dibs_command) $argv
end

function __dibs_takes_store
    test -n "$(__dibs_command)"; and not __dibs_wants help
end

complete -c dibs -f
complete -c dibs -n 'test -z (__dibs_command)' -a '(__dibs_commands)'
complete -c dibs -n 'test -n (__dibs_command); and string match -q -- "-*" (commandline -ct)' -a '(__dibs_options)'
complete -c dibs -n '__dibs_wants status break list watch hold run' -a '(__dibs_names)'
complete -c dibs -n '__dibs_wants run' -F
complete -c dibs -n '__dibs_wants help' -a '(__dibs_commands)'
complete -c dibs -n '__dibs_wants run hold' -l also -x -d 'locks that name as well' -a '(__dibs_names)'
for option in url-file tls-ca tls-cert tls-key
    complete -c dibs -n '__dibs_takes_store' -l $option -r -F
end
complete -c dibs -n '__dibs_wants list watch' -s s -l sort -x -d 'sorts by this column' -a 'name owner held left waiters sharers'
